// Reads the weights of models into the page cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

namespace weightmap::cli::start {

struct WeightsRead {
  std::uint64_t bytes = 0;      // brought in by this process
  std::uint64_t all_bytes = 0;  // of the files
  std::string trouble;          // why not all of it was read; empty: all is there
};

// Reads a model's small files, and its weights in the order that is recorded beside it
// (FILE.order), else in file order, within the memory that is free. Of those who read the same
// model at the same time one uses the disk (WarmOptions::one_reader). Files that are cached are
// left alone. Ends early if `stopped` becomes true.
WeightsRead read_weights(const std::filesystem::path& model, const std::atomic<bool>& stopped);

}  // namespace weightmap::cli::start
