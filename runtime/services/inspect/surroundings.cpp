#include "runtime/services/inspect/surroundings.hpp"

#include <fstream>

#include "mmap/pages/huge_sample.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/system/facilities.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

std::optional<std::uint64_t> read_kibibytes(const std::filesystem::path& setting) {
  std::ifstream file(setting);
  std::uint64_t number = 0;
  if (!(file >> number) || !bytes::checked_mul(number, std::uint64_t{1024}, &number))
    return std::nullopt;
  return number;
}

FileSurroundings describe(const SourceFile& source) {
  FileSurroundings around;
  around.path = source.info.path;
  around.bytes = source.file.size();
  around.extents = os::extents_of(source.file);
  const std::optional<os::Mount> mount = os::mount_of(source.file);
  if (!mount) return around;
  around.file_system = mount->file_system;
  around.device = mount->device;
  around.read_ahead_setting = os::read_ahead_setting(*mount);
  around.read_ahead_bytes = read_kibibytes(around.read_ahead_setting);
  return around;
}

}  // namespace

bool is_remote(std::string_view file_system) noexcept { return os::is_remote(file_system); }

Surroundings surroundings(const Checkpoint& checkpoint) {
  Surroundings around;
  for (const SourceFile& source : Checkpoint::Access::state(checkpoint).sources)
    if (!source.is_copy() && !source.file.is_in_memory()) around.files.push_back(describe(source));
  around.kernel = os::kernel_release();
  around.page_bytes = os::page_bytes();
  around.huge_page_bytes = mmap::huge_page_bytes();
  around.huge_page_setting = os::huge_page_setting();
  os::MemoryLimit limit = os::memory_limit();
  if (limit.available != os::MemoryLimit::unknown) around.available_bytes = limit.available;
  around.available_reason = std::move(limit.reason);
  around.has_populate_read = os::has_populate_read();
  around.has_cachestat = os::has_cachestat();
  return around;
}

}  // namespace weightmap
