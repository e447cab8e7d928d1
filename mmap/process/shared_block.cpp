#include "mmap/process/shared_block.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <random>

#include "mmap/os_error.hpp"
#include "mmap/write/write_all.hpp"
#include "runtime/bytes/escape.hpp"

namespace weightmap::os {
namespace {

namespace ipc = boost::interprocess;

constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// A memory-mappable for Boost.
struct Descriptor {
  int number;
  ipc::mapping_handle_t get_mapping_handle() const noexcept { return {number, false}; }
};

std::string quoted(const RuntimeDirectory& directory, const std::string& name) {
  return bytes::quote((directory.path() / name).native(), 4096);
}

// Beyond the limit a write would not fail but end the process.
bool may_write(std::uint64_t size) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         size <= limit.rlim_cur;
}

bool write_parts(int descriptor, BlockParts parts) noexcept {
  std::uint64_t size = 0;
  for (const auto part : parts) size += part.size();
  if (!may_write(size)) {
    errno = EFBIG;
    return false;
  }
  for (const auto part : parts)
    if (!write_all(descriptor, part)) return false;
  return true;
}

// Of the whole file, until the descriptor is closed.
bool lock(int descriptor) noexcept {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_OFD_SETLK, &whole) == 0;  // also keeps threads apart
}

}  // namespace

Result<SharedBlock> SharedBlock::open(const RuntimeDirectory& directory, const std::string& name) {
  const Result<UniqueFd> file = open_own_file(directory, name, O_RDONLY);
  if (!file) return tl::unexpected<Error>(file.error());
  return map(file->get());
}

Result<SharedBlock> SharedBlock::of_sealed(int descriptor) {
  const int found = ::fcntl(descriptor, F_GET_SEALS);
  constexpr int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (found < 0 || (found & needed) != needed)
    return failure(ErrorCode::invalid_argument,
                   "the descriptor " + std::to_string(descriptor) + " is not sealed memory");
  return map(descriptor);
}

// Private, which shares the same pages: before Linux 6.7 what is sealed cannot be mapped otherwise.
Result<SharedBlock> SharedBlock::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return tl::unexpected<Error>(os_error("look at the shared block", errno));
  if (status.st_size == 0) return failure(ErrorCode::corrupt, "the shared block is empty");
  SharedBlock block;
  try {
    block.region_ = ipc::mapped_region(Descriptor{descriptor}, ipc::read_private, 0,
                                       static_cast<std::size_t>(status.st_size));
  } catch (const ipc::interprocess_exception& refusal) {
    return tl::unexpected<Error>(os_error("map the shared block", refusal.get_native_error()));
  }
  return block;
}

Result<void> publish_block(const RuntimeDirectory& directory, const std::string& name,
                           BlockParts parts) {
  const std::string temporary = name + "." + std::to_string(std::random_device()()) + ".tmp";
  const Result<UniqueFd> file = open_own_file(directory, temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!file) return tl::unexpected<Error>(file.error());
  if (lock(file->get()) && write_parts(file->get(), parts) &&
      ::renameat(directory.descriptor(), temporary.c_str(), directory.descriptor(), name.c_str()) ==
          0)
    return {};
  const int error_number = errno;
  remove_block(directory, temporary);
  return tl::unexpected<Error>(os_error("write " + quoted(directory, name), error_number));
}

Result<UniqueFd> seal_block(BlockParts parts) {
  UniqueFd memory(::memfd_create("weightmap-catalog", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || !write_parts(memory.get(), parts) ||
      ::fcntl(memory.get(), F_ADD_SEALS, seals) != 0)
    return tl::unexpected<Error>(os_error("make sealed memory", errno));
  return memory;
}

void remove_block(const RuntimeDirectory& directory, const std::string& name) noexcept {
  ::unlinkat(directory.descriptor(), name.c_str(), 0);
}

bool remove_unlocked(const RuntimeDirectory& directory, const std::string& name) noexcept {
  const UniqueFd file(
      ::openat(directory.descriptor(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 || !lock(file.get())) return false;
  if (!has_name(directory, name, file.get())) return false;
  return ::unlinkat(directory.descriptor(), name.c_str(), 0) == 0;
}

}  // namespace weightmap::os
