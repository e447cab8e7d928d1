// What a start reads from the disk, in the order of first use, as an earlier start showed it.
//
// A plan is a JSON document that may come from another machine, so nothing in it is trusted: a
// wrong plan costs time at most.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

struct PlannedFile {
  std::string path;  // absolute, without "." and ".."
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  // Used parts of the file, ascending and apart; empty: all of it.
  std::vector<ByteRange> parts;

  std::uint64_t planned_bytes() const noexcept;
};

struct StartPlan {
  std::string key;  // of the command for which it was made; says nothing of its words
  std::vector<PlannedFile> files;

  std::uint64_t planned_bytes() const noexcept;
};

// A plan of this size has more files than any start opens.
inline constexpr std::uint64_t max_plan_bytes = std::uint64_t{32} << 20;

Json describe(const StartPlan& plan);
// Fails with corrupt for what is no plan, with unsupported for another version, naming the field.
Result<StartPlan> parse_plan(std::string_view text);

// True for a path that a plan may have: it is absolute and normal, and lies in no file system whose
// files are not on a disk (/proc, /sys, /dev, /run).
bool is_plannable(std::string_view path);
// True for a path that a file with a content of its own may have: the same, but also in /dev and
// /run, though not in /dev/shm.
bool has_own_content(std::string_view path);

}  // namespace weightmap::cli::start
