// Shared memory that is filled once, in place, and then read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mmap/reservation.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

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
