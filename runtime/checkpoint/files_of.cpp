#include "runtime/checkpoint/files_of.hpp"

#include <string>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/parsing.hpp"

namespace weightmap {
namespace {

bool name_others(Parsing& parsing, std::size_t leading) {
  return parsing.identify(leading) && parsing.row() != nullptr &&
         parsing.row()->name_files != nullptr && parsing.read_first() && parsing.named() != nullptr;
}

}  // namespace

Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path) {
  TRY_ASSIGN(const OpenOptions options, with_defaults(OpenOptions::to_look()));
  TRY_ASSIGN(const GivenFiles opened, open_given({given(path)}, options));
  std::vector<std::filesystem::path> files;
  for (const SourceFile& source : opened.sources) files.push_back(source.info.path);
  OpenStats not_of_an_open;
  Parsing parsing(opened.sources, options, not_of_an_open);
  if (!name_others(parsing, opened.leading)) return files;
  const std::filesystem::path folder = files.front().parent_path();
  if (parsing.named()->includes_first) files.clear();
  for (const std::string& file : parsing.named()->files) files.push_back(folder / file);
  return files;
}

}  // namespace weightmap
