// The text of /proc/PID/maps and /proc/PID/smaps, one mapping after another.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

namespace weightmap::mmap {

// In bytes. What is counted is in a process's page table: pages that are only cached are not.
struct MappedMemory {
  std::uint64_t resident = 0;
  std::uint64_t proportional = 0;  // PSS: each page divided by the number of processes that map it
  std::uint64_t anonymous = 0;     // copies that belong to this process
  std::uint64_t huge = 0;          // file pages mapped 2 MiB at a time
  std::uint64_t anonymous_huge = 0;  // copies mapped 2 MiB at a time
  std::uint64_t locked = 0;          // of `proportional`, what may not leave memory

  MappedMemory& operator+=(const MappedMemory& other) noexcept;
};

// A row of addresses with the same file, or none, behind it.
struct MappedArea {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  std::uint64_t file_offset = 0;
  std::uint64_t device = 0;  // as in Generation
  std::uint64_t inode = 0;   // 0: no file
  // As the system writes it: a line feed as "\012", and " (deleted)" behind what has lost its name.
  std::string path;
};

// "7f0000000000-7f0000001000 r--s 00000000 fe:00 12     /model.pt". False for any other line; of a
// line that goes wrong after the addresses, what comes before is taken.
bool parse_area(std::string_view line, MappedArea& area);

// Passes over what it does not understand, as later kernels may add to it.
class SmapsReader {
 public:
  explicit SmapsReader(std::istream& text) : text_(text) {}

  // Reads the next mapping and what is said of it; false at the end.
  bool next();
  const MappedArea& area() const noexcept { return area_; }
  const MappedMemory& memory() const noexcept { return memory_; }  // zero in /proc/PID/maps

 private:
  std::istream& text_;
  std::string line_;
  bool at_area_ = false;  // line_ is the first of the next mapping, and next_ what it says
  MappedArea next_;
  MappedArea area_;
  MappedMemory memory_;
};

}  // namespace weightmap::mmap
