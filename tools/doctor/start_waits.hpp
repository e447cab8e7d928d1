// What a start waited for, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/start_timeline.hpp"

namespace weightmap::cli::doctor {

struct StartWait {
  enum Kind : std::uint8_t {
    code_disk,     // the disk, for code and small files
    code_work,     // processors, while code is imported, be it behind the weights
    model_work,    // processors, while the model is made
    weights_disk,  // the disk, from when weights are open
    first_touch,   // the system, which gives memory and maps pages, from when weights are open
    weights_work,  // processors, while weights are loaded
    use_work,      // processors, afterwards, or without weights
    other,         // neither working nor waiting for the disk
  };
  Kind kind = other;
  double seconds = 0;
};

std::string_view to_string(StartWait::Kind kind) noexcept;  // "code_disk"

// A shorter one is not worth advice.
inline constexpr double least_wait = 0.1;  // seconds

// Returns all kinds, the longest first; together they are the whole start. While several threads
// work, nothing counts as a wait for the disk.
std::vector<StartWait> waits_of(const start::StartTimeline& timeline);

// Returns three sentences: how long the start took and its phases, what it waited for most, and
// what to do; if that was next to nothing, one.
std::vector<std::string> sentences_about(const start::StartTimeline& timeline);

}  // namespace weightmap::cli::doctor
