#include "fuzz/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/require.hpp"

namespace weightmap::fuzz {

MemoryFile::MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  require(descriptor_ >= 0, "no memory file");
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

void MemoryFile::set(std::span<const std::byte> content) {
  const bool is_set = ::ftruncate(descriptor_, 0) == 0 &&
                      ::pwrite(descriptor_, content.data(), content.size(), 0) ==
                          static_cast<ssize_t>(content.size());
  require(is_set, "a memory file cannot be written");
}

void MemoryFile::seal() {
  require(::fcntl(descriptor_, F_ADD_SEALS,
                  F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
          "a memory file cannot be sealed");
}

}  // namespace weightmap::fuzz
