#include "runtime/checkpoint/files_of.hpp"

#include <optional>
#include <string>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/parsing.hpp"
#include "runtime/formats/sets/hub.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

// A file of another name is not read: evict(), which needs the files, would leave its end cached.
bool may_name_others(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".metadata") || path.ends_with(".gguf");
}

bool name_others(Parsing& parsing, std::size_t leading) {
  return parsing.identify(leading) && parsing.row() != nullptr &&
         parsing.row()->name_files != nullptr && parsing.read_first() && parsing.named() != nullptr;
}

// The folder of a checkpoint; empty for what is a file by itself.
fs::path folder_of_files(const fs::path& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return path;
  if (fs::exists(path, unknown))
    return may_name_others(path.native()) ? fs::absolute(path, unknown).parent_path() : fs::path();
  const Result<std::optional<sets::HubSnapshot>> hub = sets::find_in_hub_cache(path.native());
  return hub && *hub ? (*hub)->folder : fs::path();
}

}  // namespace

std::vector<fs::path> unopened_files_of(const fs::path& path) {
  std::vector<fs::path> files;
  std::error_code stop;
  for (fs::directory_iterator entry(folder_of_files(path), stop), end; !stop && entry != end;
       entry.increment(stop))
    if (std::error_code unknown; entry->is_regular_file(unknown)) files.push_back(entry->path());
  return files.empty() ? std::vector{path} : files;
}

// An index, metadata or a part of a split with the files that it names. A file of another content,
// or of none of ours, is one file.
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
