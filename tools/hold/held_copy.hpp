// One version of a file in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "weightmap/checkpoint.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli::hold {

class HeldCopy {
 public:
  // Opens the file that `path` names now, and starts to prefetch it in the background. With
  // `wants_lock` it is locked in memory if the system permits.
  static Result<std::unique_ptr<HeldCopy>> open(const std::filesystem::path& path, bool wants_lock);

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  const Generation& generation() const noexcept { return checkpoint_.generation(); }
  bool is_warming() const noexcept { return warmer_.has_value(); }
  // After the last finished warm-up.
  bool is_locked() const noexcept { return is_locked_; }
  const std::string& lock_refusal() const noexcept { return lock_refusal_; }  // empty: none
  const std::string& problem() const noexcept { return problem_; }            // empty: none
  std::uint64_t bytes_left_out() const noexcept { return bytes_left_out_; }
  // The number of warm-ups in which this process was the elected reader.
  std::uint64_t elections() const noexcept { return elections_; }

  // Takes the result of a finished warm-up; starts one without locking if that was refused.
  void advance();
  // Starts a warm-up again: reads evicted pages, and marks the others as recently used.
  // Precondition: !is_warming().
  void touch();
  // Does the same, and locks the pages unless that is refused again. Precondition: !is_warming().
  void lock();

 private:
  HeldCopy(Checkpoint checkpoint, bool wants_lock)
      : checkpoint_(std::move(checkpoint)), wants_lock_(wants_lock) {}

  Checkpoint checkpoint_;
  bool wants_lock_;
  bool is_locked_ = false;
  std::string lock_refusal_;
  std::string problem_;
  std::uint64_t bytes_left_out_ = 0;
  std::uint64_t elections_ = 0;
  std::optional<Warmer> warmer_;  // destroyed before the checkpoint
};

}  // namespace weightmap::cli::hold
