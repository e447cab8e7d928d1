#include "weightmap/shared_catalogs.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "mmap/directory.hpp"
#include "mmap/file.hpp"
#include "mmap/process/process_lock.hpp"
#include "mmap/process/runtime_directory.hpp"
#include "mmap/process/shared_block.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/shared_catalog/publish_catalog.hpp"
#include "runtime/shared_catalog/published.hpp"

namespace weightmap {
namespace {

SharedFileState state_of(const std::filesystem::path& path, const Generation& generation) {
  const Result<os::File> file = os::File::open(path, false);
  if (!file) return SharedFileState::gone;
  return file->generation() == generation ? SharedFileState::current : SharedFileState::changed;
}

SharedFileState state_of(const catalog::Description& made) {
  if (made.source.empty()) return SharedFileState::unknown;
  const SharedFileState first = state_of(made.source, made.generation);
  if (first != SharedFileState::current) return first;
  const std::filesystem::path folder = std::filesystem::path(made.source).parent_path();
  for (const catalog::ListedFile& other : made.others)
    if (const SharedFileState state = state_of(folder / other.name, other.generation);
        state != SharedFileState::current)
      return state;
  return first;
}

SharedFile measure(const os::RuntimeDirectory& directory, const std::string& name) {
  SharedFile file;
  std::error_code ignored;
  const std::uintmax_t size = std::filesystem::file_size(directory.path() / name, ignored);
  if (!ignored) file.bytes = size;
  file.name = name;
  return file;
}

SharedFile describe(const os::RuntimeDirectory& directory, const std::string& name) {
  SharedFile file = measure(directory, name);
  if (const Result<os::SharedBlock> block = os::SharedBlock::open(directory, name))
    if (const Result<catalog::Summary> summary = catalog::summarize(block->bytes())) {
      file.state = state_of(summary->description);
      file.checkpoint = summary->description.source;
      file.tensors = summary->tensors;
    }
  return file;
}

bool is_catalog(std::string_view name) noexcept { return name.starts_with("catalog-"); }

bool is_temporary(std::string_view name) noexcept {
  return name.starts_with(unfinished_prefix) && name.ends_with(".tmp");
}

bool is_lock(std::string_view name) noexcept {
  return name.starts_with("warm-") && name.ends_with(".lock");
}

Result<std::vector<std::string>> names_in_it(const os::RuntimeDirectory& directory) {
  Result<std::vector<std::string>> names = os::names_in(directory.descriptor(), "");
  if (!names) names.error().message += ": " + bytes::quote(directory.path().native(), 4096);
  return names;
}

// What of it was removed, if it was.
std::optional<SharedFile> remove_if_stale(const os::RuntimeDirectory& directory,
                                          const std::string& name) {
  if (is_temporary(name) || is_lock(name)) {
    SharedFile file = measure(directory, name);
    file.state = SharedFileState::leftover;
    const bool is_removed = is_lock(name) ? os::remove_left_lock(directory, name)
                                          : os::remove_unlocked(directory.descriptor(), name);
    if (!is_removed) return std::nullopt;
    return file;
  }
  if (!is_catalog(name)) return std::nullopt;
  SharedFile file = describe(directory, name);
  if (file.state == SharedFileState::current || file.state == SharedFileState::unknown)
    return std::nullopt;
  os::remove_block(directory, name);
  return file;
}

}  // namespace

Result<std::vector<SharedFile>> shared_catalogs() {
  const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (!directory) return tl::unexpected<Error>(directory.error());
  const Result<std::vector<std::string>> names = names_in_it(*directory);
  if (!names) return tl::unexpected<Error>(names.error());
  std::vector<SharedFile> files;
  for (const std::string& name : *names)
    if (is_catalog(name)) files.push_back(describe(*directory, name));
  return files;
}

Result<std::vector<SharedFile>> remove_stale_catalogs() {
  const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (!directory) return tl::unexpected<Error>(directory.error());
  const Result<std::vector<std::string>> names = names_in_it(*directory);
  if (!names) return tl::unexpected<Error>(names.error());
  std::vector<SharedFile> removed;
  for (const std::string& name : *names)
    if (std::optional<SharedFile> file = remove_if_stale(*directory, name))
      removed.push_back(std::move(*file));
  return removed;
}

std::string_view to_string(SharedFileState state) noexcept {
  switch (state) {
    case SharedFileState::current:
      return "current";
    case SharedFileState::unknown:
      return "unknown";
    case SharedFileState::changed:
      return "changed";
    case SharedFileState::gone:
      return "gone";
    case SharedFileState::unreadable:
      return "unreadable";
    case SharedFileState::leftover:
      return "leftover";
  }
  return "unknown";
}

}  // namespace weightmap
