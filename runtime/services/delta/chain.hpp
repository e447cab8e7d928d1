// A base, the deltas that are applied to it, and the tensors that change: read, and checked as far
// as that needs no frame to be decompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/delta/delta_folder.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/files_beside.hpp"
#include "runtime/services/delta/sums.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

// Returns how many threads are meant by an option; 0 means one for each processor.
std::size_t threads_of(std::size_t asked) noexcept;

// Fails with invalid_argument if a change in place of what is in the folder was not ended.
Result<void> check_ended(const std::filesystem::path& folder);

// The model that deltas are applied to: all of it of one folder, which is looked up once.
struct Base {
  // `name` is what the folder is called when it has its name; see ApplyOptions::base_version.
  static Result<Base> open(const std::filesystem::path& folder, const std::filesystem::path& name,
                           const ApplyOptions& options);

  const Checkpoint::State& state() const noexcept { return Checkpoint::Access::state(checkpoint); }
  const Sources& sources() const noexcept { return state().sources; }

  Checkpoint checkpoint;
  std::filesystem::path folder;  // of its files, without links to it
  FilesBeside beside;
  std::string version;
};

// One frame of a chain.
struct Step {
  const DeltaFolder* folder;
  const DeltaFolder::Tensor* tensor;
};

struct ChangedTensor {
  std::size_t source;  // its file in the base
  ByteRange range;     // in it
  std::vector<Step> steps;
  std::uint64_t memory = 0;  // bytes that their frames need at once
};

using ChangedTensors = std::map<std::size_t, ChangedTensor>;  // by the index in the base

struct Chain {
  // Fails unless each delta is for the version that the one before it makes, and each frame is one
  // for its tensor in the base; with limit_exceeded if those of one tensor need too much memory.
  static Result<Chain> open(const std::filesystem::path& base, const std::filesystem::path& name,
                            std::span<const std::filesystem::path> deltas,
                            const ApplyOptions& options);

  // What is known before anything is done; of files that are in `folder` then.
  ApplyReport report(const std::filesystem::path& folder) const;
  // Fails with io if what was read has changed meanwhile.
  Result<void> check_unchanged() const;

  // Closes the base, and returns the deltas, to which copies of `changed` still point.
  std::vector<DeltaFolder> close() &&;

  Base base;
  std::vector<DeltaFolder> deltas;  // to which `changed` points
  ChangedTensors changed;
};

// Applies all frames of one tensor to each of its windows, so that nothing between is written.
// Single-threaded.
class TensorChange {
 public:
  static Result<TensorChange> open(const ChangedTensor& tensor);

  // Changes the next bytes of the tensor, at most window_bytes of them.
  Result<void> apply(std::span<std::byte> window);
  // Goes on behind the next bytes, which were changed before.
  Result<void> skip(std::uint64_t bytes);
  // Fails with corrupt if a frame has more, or if the tensor has not the sum of each step. After
  // skip() sums are not known, and not compared.
  Result<void> finish();

 private:
  struct Running {
    const Step* step;
    std::unique_ptr<Change> change;
    RunningSum sum;
  };
  std::vector<Running> running_;
  bool knows_sums_ = true;
};

// Fails with corrupt if this is not the sum that the step has.
Result<void> compare_sum(const Step& step, const std::string& sum);

}  // namespace weightmap::delta
