// Inspects a mapping in this process's page table, page by page.
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
  std::uint64_t anonymous = 0;  // included: copies that belong to this process
  // Included: mapped 2 MiB at a time. nullopt if the system does not report it.
  std::optional<std::uint64_t> huge = 0;

  MappedBytes& operator+=(const MappedBytes& other) noexcept;
};

// Returns the bytes of `mapping` in copies that no other process shares (a fork shares them); whole
// pages. Reads 8 bytes per page. Fails with io if the system hides them.
Result<std::uint64_t> unshared_copies(std::span<const std::byte> mapping);

// The pages of a mapping in the page table at one moment, from /proc/self/pagemap.
class MappedPages {
 public:
  // Inspects all of `mapping`, which begins with a page; empty for an empty one. Uses scan(), with
  // read() as the fallback. Fails with io if both fail.
  static Result<MappedPages> of(std::span<const std::byte> mapping);

  // The two methods. scan() is the PAGEMAP_SCAN request of Linux 6.7: its result has an entry for
  // each uniform range, and is read in pieces. read() takes 8 bytes per page, and cannot detect
  // huge ones.
  static Result<MappedPages> scan(std::span<const std::byte> mapping);
  static Result<MappedPages> read(std::span<const std::byte> mapping);

  // Returns the figures of [offset, offset + length), cut at the end of the mapping.
  MappedBytes bytes(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  MappedPages(std::uint64_t mapped_bytes, bool knows_huge);
  // Add pages that are in the page table, after absent ones up to `first`.
  void append(std::uint64_t first, std::uint64_t pages, bool is_anonymous, bool is_huge);
  void append_absent(std::uint64_t end);

  PageBits resident_;
  PageBits anonymous_;
  std::optional<PageBits> huge_;
};

}  // namespace weightmap::mmap
