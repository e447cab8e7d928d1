// The stages of an open, each of which fills a part of the state.
#pragma once

#include <optional>

#include "runtime/bytes/windows.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/torch/read_tensors.hpp"
#include "runtime/zip/directory.hpp"

namespace weightmap {

class Checkpoint::Opener {
 public:
  Opener(State& state, const OpenOptions& options)
      : state_(state), options_(options), windows_(std::in_place, state.file, state.memory) {}

  Result<void> run();

 private:
  Result<void> read_archive();
  Result<void> read_pickle();
  Result<void> place_tensors();
  void keep_nodes(const torch::TensorTable& table);
  void release_metadata();
  Result<void> map();
  void summarize();

  State& state_;
  const OpenOptions& options_;
  std::optional<bytes::Windows> windows_;  // until release_metadata()
  zip::Directory directory_;
  torch::ArchiveRecords records_{};
  std::uint64_t pickle_offset_ = 0;
};

}  // namespace weightmap
