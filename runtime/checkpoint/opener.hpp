// The stages of an open, each of which fills a part of the state.
#pragma once

#include <optional>

#include "runtime/bytes/windows.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/torch/read_tensors.hpp"
#include "runtime/zip/directory.hpp"

namespace weightmap {

class Opener {
 public:
  using State = Checkpoint::State;
  // Counts into `stats`.
  Opener(State& state, const OpenOptions& options, OpenStats& stats)
      : state_(state),
        parsed_(state.parsed),
        stats_(stats),
        options_(options),
        windows_(std::in_place, state.file, state.parsed.memory) {}

  // Parses and maps.
  Result<void> run();
  // Fills state.parsed only.
  Result<void> parse();
  // The last stage, which an attached catalog needs, too.
  static Result<void> map(State& state, const OpenOptions& options);

 private:
  Result<void> read_archive();
  Result<void> read_pickle();
  Result<void> place_tensors();
  void keep_nodes(const torch::TensorTable& table);
  void release_metadata();
  void summarize();

  State& state_;
  Parsed& parsed_;
  OpenStats& stats_;
  const OpenOptions& options_;
  std::optional<bytes::Windows> windows_;  // until release_metadata()
  zip::Directory directory_;
  torch::ArchiveRecords records_{};
  std::uint64_t pickle_offset_ = 0;
};

}  // namespace weightmap
