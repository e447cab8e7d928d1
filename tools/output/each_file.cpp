#include "tools/output/each_file.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"

namespace weightmap::cli {

Result<int> examine_each(Output& out, const std::vector<std::string>& files, bool json,
                         const std::function<Result<OfFile>(const std::string& file)>& examine) {
  if (files.size() == 1) {
    TRY_ASSIGN(const OfFile found, examine(files.front()));
    if (json) out.write(to_text(found.document) + "\n");
    return found.code;
  }
  int code = exit_good;
  Json documents = Json::array();
  for (const std::string& file : files) {
    Result<OfFile> found = examine(file);
    if (!found) {
      std::fprintf(stderr, "weightmap: %s\n", to_string(found.error()).c_str());
      found = OfFile{exit_failed, {{"file", file}, {"error", describe(found.error())}}};
    }
    code = std::max(code, found->code);
    documents.push_back(std::move(found->document));
  }
  if (json) out.write(to_text({{"files", std::move(documents)}}) + "\n");
  return code;
}

}  // namespace weightmap::cli
