// What a start did and when, as samples from outside show it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/process_tree.hpp"

namespace weightmap::cli::start {

// All numbers are those since the start but for memory, which is that of the moment.
struct StartSample {
  double seconds = 0;
  ProcessCounts counts;
  std::uint64_t reader_bytes = 0;  // read from the disk by the process beside the command
  std::uint64_t code_files = 0;    // files of code that were opened or mapped
  std::uint64_t weight_bytes = 0;  // sizes of the files of weights that were
};

// When a start from a snapshot had read and compared its image, and when it was restored; seconds.
struct RestoreTimes {
  double checked = 0, restored = 0;
};

struct StartTimeline {
  std::string program;  // its name alone; whatever its user calls it
  bool has_ended = false;
  std::vector<StartSample> samples;
  std::optional<RestoreTimes> restore = {};  // of a start from a snapshot
  bool weights_can_be_mapped = false;        // all that were opened are safetensors or GGUF

  double seconds() const noexcept { return samples.empty() ? 0 : samples.back().seconds; }
};

// Leaves out the samples after the end, and adds one there; the first one stays, also for an end
// before it. Precondition: there is a sample.
void end_at(StartTimeline& timeline, double seconds);

// Says that it was a start from a snapshot, with a sample at each of the two times.
void mark_restore(StartTimeline& timeline, const RestoreTimes& times);

// Fewer code files between two samples are stragglers of an import.
inline constexpr std::uint64_t files_of_a_burst = 10;

// A part of a start, as far as it can be told from outside: "code" goes on until code files were
// last opened before weights are, "model creation" until weights are opened, "weights" until
// nothing more comes in, and "first use" until the end. Without weights the rest is "work". A start
// from a snapshot has "image check" and "restore" instead of all that comes before the first use.
struct StartPhase {
  enum Kind : std::uint8_t { code, model_creation, weights, first_use, work, image_check, restore };
  Kind kind = code;
  std::size_t first = 0, last = 0;  // samples
};

std::string_view to_string(StartPhase::Kind kind) noexcept;

// Returns the phases that take any time, in their order; together they are the whole.
std::vector<StartPhase> phases_of(const StartTimeline& timeline);

// What a part of a start did, as the difference of two samples; no number that a process took with
// it is below 0. Memory is the growth.
StartSample difference(const StartSample& from, const StartSample& to);

}  // namespace weightmap::cli::start
