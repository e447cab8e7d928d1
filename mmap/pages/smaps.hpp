// Parses /proc/PID/maps and /proc/PID/smaps, one mapping after another; and reports from the latter
// how ranges of addresses are held in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <istream>
#include <span>
#include <string>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::mmap {

// In bytes. Counts pages in a process's page table; pages that are only cached do not count.
struct MappedMemory {
  std::uint64_t resident = 0;
  std::uint64_t proportional = 0;  // PSS: each page divided by the number of processes that map it
  std::uint64_t anonymous = 0;     // copies that belong to this process
  std::uint64_t huge = 0;          // file pages mapped 2 MiB at a time
  std::uint64_t anonymous_huge = 0;  // copies mapped 2 MiB at a time
  std::uint64_t locked = 0;          // part of `proportional` that is locked in memory

  MappedMemory& operator+=(const MappedMemory& other) noexcept;
};

// A contiguous range of addresses backed by the same file, or by none.
struct MappedArea {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  std::uint64_t file_offset = 0;
  std::uint64_t device = 0;  // as in Generation
  std::uint64_t inode = 0;   // 0: no file
  // In the system's spelling: a line feed is "\012", " (deleted)" follows a removed name.
  std::string path;
};

// Parses "7f0000000000-7f0000001000 r--s 00000000 fe:00 12     /model.pt". Returns false for any
// other line; if a line is malformed after the addresses, the fields before are kept.
bool parse_area(std::string_view line, MappedArea& area);

// Skips unknown lines, which later kernels may add.
class SmapsReader {
 public:
  explicit SmapsReader(std::istream& text) : text_(text) {}

  // Reads the next mapping and its figures; returns false at the end.
  bool next();
  const MappedArea& area() const noexcept { return area_; }
  const MappedMemory& memory() const noexcept { return memory_; }  // zero in /proc/PID/maps

 private:
  std::istream& text_;
  std::string line_;
  bool at_area_ = false;  // line_ is the first of the next mapping, and next_ its fields
  MappedArea next_;
  MappedArea area_;
  MappedMemory memory_;
};

// Returns the figures of `range`; zeros for an empty one. The system counts per mapping, and merges
// similar neighbours: for a mapping that exceeds the range, the figures are scaled by length. Fails
// with io if the system does not list all of the range.
Result<MappedMemory> mapped_memory(std::span<const std::byte> range);
// Returns the sum over all ranges, from one read of the list.
Result<MappedMemory> mapped_memory(std::span<const std::span<const std::byte>> ranges);

struct AddressRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Does the same for a text in the format of /proc/self/smaps.
Result<MappedMemory> read_smaps(std::istream& smaps, std::span<const AddressRange> ranges);

}  // namespace weightmap::mmap
