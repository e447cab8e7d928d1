// The state of a StagedFile, and the checks of whoever makes one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "mmap/reservation.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

struct StagedFile::State {
  os::UniqueFd descriptor;  // for reading
  mmap::Reservation writable;
  std::filesystem::path path;
  StageReport report;
};

struct StagedFile::Access {
  static StagedFile make(std::unique_ptr<State> state) noexcept {
    return StagedFile(std::move(state));
  }
};

// Fails with io if a copy of so many bytes takes more than the budget, or, if that is 0, than there
// is: of memory, and, for a copy with a name, of room in /dev/shm.
Result<void> check_fits(std::uint64_t bytes, std::uint64_t budget_bytes, bool has_name);

// Returns the path of a copy of this name, which is free. Fails with invalid_argument if it cannot
// be used, or exists.
Result<std::filesystem::path> path_of_copy(const std::string& name);

// Fails with io if the copy could not be opened, or has other tensors than `source`, whose metadata
// was read from the original.
Result<void> check_copy(const Checkpoint& source, const Result<Checkpoint>& copy);
// The same for a copy that only is a descriptor.
Result<void> check_copy(const Checkpoint& source, int descriptor);

// Makes a new file that gets its name last, for its owner only.
Result<NewFile> create_named_copy(const std::filesystem::path& path, std::uint64_t bytes);
// Gives the file, which is filled and checked, its name, and opens it in `state`. Once it has its
// name, only opening it by the name may still fail; then it has none.
Result<void> name_copy(NewFile& file, const std::filesystem::path& path, StagedFile::State& state);

}  // namespace weightmap
