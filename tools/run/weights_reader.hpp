// Reads the weights of models into the page cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tools/run/start_plan.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::start {

struct WeightsRead {
  std::uint64_t bytes = 0;      // brought in by this process
  std::uint64_t all_bytes = 0;  // of the files
  std::string trouble;          // why not all of it was read; empty: all is there
};

// The files of a checkpoint: its tensors in the order that is recorded beside the model
// (MODEL.order), then all that is left, in the order of the files.
StartPlan weights_plan(const Checkpoint& checkpoint, const std::filesystem::path& model);

// True for a model on a network, or FUSE, if what a plan reads most of comes from elsewhere:
// reading one then does not slow the other.
bool comes_another_way(const std::filesystem::path& model, const StartPlan& plan);

// Reads a model's small files, and its weights as they are planned (plan_reading.hpp), within the
// memory that is free. Ends early if `stopped` becomes true.
WeightsRead read_weights(const std::filesystem::path& model, const std::atomic<bool>& stopped);

}  // namespace weightmap::cli::start
