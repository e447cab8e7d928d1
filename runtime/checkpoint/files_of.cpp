#include "runtime/checkpoint/files_of.hpp"

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/parsing.hpp"

namespace weightmap {
namespace {

bool name_others(Parsing& parsing, std::size_t leading) {
  return parsing.identify(leading) && parsing.row() != nullptr &&
         parsing.row()->name_files != nullptr && parsing.read_first() && parsing.named() != nullptr;
}

}  // namespace

// A file of another name is not read: evict(), which needs the files, would leave its end cached.
bool may_name_others(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".metadata") || path.ends_with(".gguf");
}

Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path) {
  TRY_ASSIGN(const OpenOptions options, with_defaults(OpenOptions::to_look()));
  TRY_ASSIGN(const GivenFiles opened, open_given({given(path)}, options));
  std::vector<std::filesystem::path> files;
  for (const SourceFile& source : opened.sources) files.push_back(source.info.path);
  if (!may_name_others(files.front().native())) return files;
  OpenStats not_of_an_open;
  Parsing parsing(opened.sources, options, not_of_an_open);
  if (!name_others(parsing, opened.leading)) return files;
  const std::filesystem::path folder = files.front().parent_path();
  if (parsing.named()->includes_first) files.clear();
  for (const std::string& file : parsing.named()->files) files.push_back(folder / file);
  return files;
}

}  // namespace weightmap
