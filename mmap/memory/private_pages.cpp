#include "mmap/memory/private_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "mmap/memory/huge_pages.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"

namespace weightmap::os {
namespace {

constexpr std::size_t large_page = HugePageResource::page;

// Of `size` bytes, at an address that leaves the same rest as `like`: only then can a large page be
// moved there as one. mmap aligns to small pages, so what sticks out is given back.
std::byte* map_like(const std::byte* like, std::size_t size) noexcept {
  void* const mapped = ::mmap(nullptr, size + large_page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (reinterpret_cast<std::uintptr_t>(like) - reinterpret_cast<std::uintptr_t>(first)) %
      large_page;
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, large_page - before);
  return first + before;
}

}  // namespace

Result<void> check_replaceable(const Mapping& mapping) {
  if (mapping.writable())
    return failure(ErrorCode::unsupported,
                   "a writable mapping cannot be filled past the page cache: what was written to "
                   "it would be lost");
  if (mapping.locked())
    return failure(ErrorCode::unsupported,
                   "a locked mapping cannot be filled past the page cache: its new pages would not "
                   "be locked");
  return {};
}

Result<PrivatePages> PrivatePages::for_range(const Mapping& mapping, std::uint64_t offset,
                                             std::uint64_t length) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t start = offset / page * page;
  const std::uint64_t size = (offset + length - start + page - 1) / page * page;
  // The mapping is const to its readers, who see the same bytes before and after.
  auto* const place = const_cast<std::byte*>(mapping.bytes().data() + start);
  std::byte* const memory = map_like(place, size);
  if (memory == nullptr)
    return tl::unexpected<Error>(
        os_error("get " + std::to_string(size) + " bytes of private memory", errno, start));
  if (mapping.huge_pages()) ::madvise(memory, size, MADV_HUGEPAGE);
  return PrivatePages(place, {memory, size});
}

PrivatePages::~PrivatePages() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<void> PrivatePages::take_place() {
  // The kernel unmaps and moves under one lock, for which a fault waits. That the process has too
  // many mappings is the one refusal to be expected, and mremap_to() looks for it before it unmaps.
  if (::mprotect(bytes_.data(), bytes_.size(), PROT_READ) == 0 &&
      ::mremap(bytes_.data(), bytes_.size(), bytes_.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
               place_) != MAP_FAILED) {
    bytes_ = {};
    return {};
  }
  Error error = os_error("put " + std::to_string(bytes_.size()) +
                             " bytes of private memory into the place of the file's",
                         errno);
  if (error.os_error == ENOMEM)
    error.message += " (the number of mappings, vm.max_map_count, is used up)";
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap::os
