#include "mmap/memory/snapshot.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "mmap/memory/copy_file.hpp"
#include "mmap/memory/memory_limit.hpp"
#include "mmap/memory/sealed_memory.hpp"
#include "mmap/unique_fd.hpp"

namespace weightmap::os {
namespace {

// In the folder that the file lies in now, whatever names led there.
UniqueFd clone_blocks(const File& source) {
  std::error_code unknown;
  const std::filesystem::path path = std::filesystem::read_symlink(
      "/proc/self/fd/" + std::to_string(source.descriptor()), unknown);
  if (unknown) return UniqueFd();
  UniqueFd clone(::open(path.parent_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (clone.get() < 0 || ::ioctl(clone.get(), FICLONE, source.descriptor()) != 0) return UniqueFd();
  return clone;
}

// The system would not refuse more than it has, but end a process.
Result<void> check_fits(const File& source) {
  const MemoryLimit limit = memory_limit();
  if (source.size() <= limit.usable()) return {};
  return failure(ErrorCode::io, "a copy takes " + std::to_string(source.size()) +
                                    " bytes of memory, and there are " +
                                    std::to_string(limit.usable()) + " (15/16 of " + limit.reason +
                                    ")");
}

Result<UniqueFd> copy_to_sealed_memory(const File& source) {
  if (Result<void> ok = check_fits(source); !ok) return tl::unexpected<Error>(ok.error());
  Result<UniqueFd> memory = make_memfd(source.size());
  if (!memory) return memory;
  if (Result<CopyReport> copied = copy_to_memory(source, memory->get(), {}); !copied)
    return tl::unexpected<Error>(copied.error());
  if (Result<void> sealed = seal(memory->get()); !sealed)
    return tl::unexpected<Error>(sealed.error());
  return memory;
}

// For reading only: kernels before 6.7 refuse to share what is sealed and open for writing.
Result<File> for_reading(const UniqueFd& file) {
  const Result<UniqueFd> reading = reopen_for_reading(file.get());
  return File::from_descriptor(reading ? reading->get() : file.get());
}

}  // namespace

Result<Snapshot> take_snapshot(const File& source) {
  std::string_view means = "reflink";
  Result<UniqueFd> copy = clone_blocks(source);
  if (copy->get() < 0) {
    means = "memfd";
    copy = copy_to_sealed_memory(source);
  }
  if (!copy) return tl::unexpected<Error>(copy.error());
  if (Result<void> ok = source.check_unchanged(); !ok) return tl::unexpected<Error>(ok.error());
  Result<File> file = for_reading(*copy);
  if (!file) return tl::unexpected<Error>(file.error());
  return Snapshot{std::move(*file), means};
}

}  // namespace weightmap::os
