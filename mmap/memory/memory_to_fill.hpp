// Memory of new files, mapped to be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "mmap/reservation.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// A writable mapping of a new file that lives in memory, whose pages come before what is written to
// them. May be used by any thread.
class MemoryToFill {
 public:
  // Maps the file, which has `bytes`, at least one, and is open for reading and writing as long as
  // this exists. Requests huge pages, but works without them. Fails with io if the system refuses.
  static Result<MemoryToFill> map(int descriptor, std::uint64_t bytes);

  std::span<std::byte> bytes() const noexcept { return mapped_.bytes(); }  // whole pages

  // Allocates memory for the range, so that filling it raises no signal. Returns false if all of it
  // was allocated before. Fails with io if there is none.
  Result<bool> allocate(std::uint64_t offset, std::uint64_t length);
  // Enters the pages of the range in the page table, so that filling it costs no faults. Does
  // nothing before Linux 5.14. Precondition: the range is allocated.
  void fault_in(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  MemoryToFill(int descriptor, Reservation mapped);
  Result<bool> allocate_step(std::size_t step);
  bool reserve(std::uint64_t offset, std::uint64_t length) const noexcept;
  void collapse(std::uint64_t offset) noexcept;

  int descriptor_;
  Reservation mapped_;
  // One thread at a time allocates, since threads would spin on the system's lock.
  std::unique_ptr<std::mutex> allocating_ = std::make_unique<std::mutex>();
  std::vector<bool> allocated_;  // by step; this and the next are protected by the mutex
  bool collapses_ = true;
};

// Maps the first `bytes`, at least one, of the file that `descriptor` has open for writing, at an
// address that is a multiple of large_page. Fails with io if the system refuses.
Result<Reservation> map_for_writing(int descriptor, std::uint64_t bytes);

// Shared memory that is filled once, in place, and then read-only.
class WriteOnceMemory {
 public:
  // Makes memory of `bytes` zeros, at least one. All of it is allocated now, so that filling it
  // raises no signal. Fails with io if the machine, or a cgroup above this process, lacks memory.
  static Result<WriteOnceMemory> make(std::uint64_t bytes, const std::string& label);

  std::span<std::byte> bytes() const noexcept { return mapped_.bytes(); }

  // Seals the memory against all changes and returns it as a file. bytes() become invalid.
  Result<os::File> seal() &&;

 private:
  WriteOnceMemory(os::UniqueFd memory, Reservation mapped) noexcept
      : memory_(std::move(memory)), mapped_(std::move(mapped)) {}

  os::UniqueFd memory_;
  Reservation mapped_;
};

}  // namespace weightmap::mmap
