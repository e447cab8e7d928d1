// How a mapping is held in this process's page table, page by page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mmap/pages/page_bits.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

struct MappedBytes {
  std::uint64_t resident = 0;
  std::uint64_t anonymous = 0;  // of these, copies that belong to this process
  // Of these, mapped 2 MiB at a time. nullopt where the system does not tell.
  std::optional<std::uint64_t> huge = 0;

  MappedBytes& operator+=(const MappedBytes& other) noexcept;
};

// How much of `mapping` are copies that no other process shares, as a fork makes them shared; whole
// pages. Costs 8 bytes to read for each page of the mapping. Fails with io if the system does not
// tell.
Result<std::uint64_t> unshared_copies(std::span<const std::byte> mapping);

// Which pages of a mapping were in the page table at one moment, as /proc/self/pagemap says it.
class MappedPages {
 public:
  // One look at all of `mapping`, which begins with a page; empty for an empty one. By scan(), or
  // where that fails by read(). Fails with io if the system tells neither way.
  static Result<MappedPages> of(std::span<const std::byte> mapping);

  // The ways. scan() is the PAGEMAP_SCAN request of Linux 6.7: its answer is as long as the page
  // table has ranges that differ, and is taken in pieces. read() takes 8 bytes for each page, and
  // does not learn what is huge.
  static Result<MappedPages> scan(std::span<const std::byte> mapping);
  static Result<MappedPages> read(std::span<const std::byte> mapping);

  // Of [offset, offset + length), cut at the end of the mapping.
  MappedBytes bytes(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  MappedPages(std::uint64_t mapped_bytes, bool knows_huge);
  // Adds pages that are in the page table, after ones up to `first` that are not.
  void append(std::uint64_t first, std::uint64_t pages, bool is_anonymous, bool is_huge);
  void append_absent(std::uint64_t end);

  PageBits resident_;
  PageBits anonymous_;
  std::optional<PageBits> huge_;
};

}  // namespace weightmap::mmap
