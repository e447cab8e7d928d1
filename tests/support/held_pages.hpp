// Pages of a file that stay in the page cache, whatever else the system or another process evicts.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

namespace weightmap::test {

// Holds by mappings of its own, so that what a test counts of another mapping is not changed. A
// user who may lock little memory keeps the pages mapped only, which is what holds against an
// eviction.
class HeldPages {
 public:
  HeldPages() = default;
  explicit HeldPages(const std::filesystem::path& path) {
    hold(path, 0, std::filesystem::file_size(path));
  }
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;
  ~HeldPages() { release(); }

  // Brings in the pages of this range that are not cached, and none around them.
  void hold(const std::filesystem::path& path, std::uint64_t offset, std::uint64_t length) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = offset / page * page;
    const std::size_t bytes = offset + length - begin;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(begin));
    ::close(descriptor);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map " + path.string());
    held_.emplace_back(static_cast<std::byte*>(mapped), bytes);
    ::madvise(mapped, bytes, MADV_RANDOM);
    // Not mlock(), which sanitizers replace by nothing.
    if (::syscall(SYS_mlock2, mapped, bytes, 0) == 0) return;
    for (std::size_t at = 0; at < bytes; at += page)
      static_cast<void>(*static_cast<const volatile std::byte*>(&held_.back()[at]));
  }

  void release() {
    for (const std::span<std::byte> pages : held_) ::munmap(pages.data(), pages.size());
    held_.clear();
  }

 private:
  std::vector<std::span<std::byte>> held_;
};

// Of a mapping that a test looks at: what is touched from now on stays in it, where this user may
// lock so much. Brings in nothing.
inline void lock_when_touched(std::span<const std::byte> mapping) {
  ::mlock2(mapping.data(), mapping.size(), MLOCK_ONFAULT);
}

}  // namespace weightmap::test
