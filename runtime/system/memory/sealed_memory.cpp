#include "runtime/system/memory/sealed_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/try.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap::os {
namespace {

constexpr std::size_t longest_label = 200;  // the system's maximum is 249

UniqueFd create(const std::string& label) noexcept {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd memory(::memfd_create(label.c_str(), flags | MFD_NOEXEC_SEAL));
  if (memory.get() >= 0 || errno != EINVAL) return memory;
  return UniqueFd(::memfd_create(label.c_str(), flags));
}

// `against_writing` is the seal against some or all writes.
Result<void> add_seals(int descriptor, int against_writing) {
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | against_writing;
  if (::fcntl(descriptor, F_ADD_SEALS, seals) == 0) return {};
  return os_failure("seal shared memory");
}

std::string path_in(std::uint32_t process, std::uint32_t descriptor) {
  return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
}

}  // namespace

Result<UniqueFd> make_memfd(std::uint64_t bytes, const std::string& label) {
  UniqueFd memory = create(label.substr(0, longest_label));
  if (memory.get() < 0) return os_failure("make shared memory (memfd)");
  TRY(resize(memory.get(), bytes));
  return memory;
}

Result<void> seal(int descriptor) { return add_seals(descriptor, F_SEAL_WRITE); }

Result<void> seal_but_for_mappings(int descriptor) {
  return add_seals(descriptor, F_SEAL_FUTURE_WRITE);
}

Result<void> seal_size(int descriptor) { return add_seals(descriptor, 0); }

Result<UniqueFd> reopen_for_reading(int descriptor) {
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor);
  UniqueFd reading(::open(self.c_str(), O_RDONLY | O_CLOEXEC));
  if (reading.get() < 0 && errno == ENOENT)  // no /proc
    reading = UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (reading.get() < 0) return os_failure("open shared memory for reading");
  return reading;
}

Result<UniqueFd> open_memory_of(std::uint32_t process, std::uint32_t descriptor) {
  const std::string path = path_in(process, descriptor);
  UniqueFd memory(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (memory.get() < 0) return os_failure("open shared memory of process " + path);
  constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((::fcntl(memory.get(), F_GET_SEALS) & size_seals) == size_seals) return memory;
  return failure(ErrorCode::io, path + " is no shared memory of a sealed size");
}

bool is_memory_of(int own, std::uint32_t process, std::uint32_t descriptor) {
  struct stat here {
  }, there{};
  return ::fstat(own, &here) == 0 && ::stat(path_in(process, descriptor).c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

Result<std::uint64_t> size_of_memory(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return os_failure("look at shared memory");
  return static_cast<std::uint64_t>(status.st_size);
}

std::filesystem::path path_of_descriptor(int descriptor) {
  return path_in(static_cast<std::uint32_t>(::getpid()), static_cast<std::uint32_t>(descriptor));
}

}  // namespace weightmap::os
