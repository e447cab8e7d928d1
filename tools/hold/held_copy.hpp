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
  // Opens what `path` means now, and begins to bring it in, in the background. With `wants_lock`
  // it is locked in memory if the system lets us.
  static Result<std::unique_ptr<HeldCopy>> open(const std::filesystem::path& path, bool wants_lock);

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  const Generation& generation() const noexcept { return checkpoint_.generation(); }
  bool is_warming() const noexcept { return warmer_.has_value(); }
  // Of the last warm-up that has ended.
  bool is_locked() const noexcept { return is_locked_; }
  const std::string& lock_refusal() const noexcept { return lock_refusal_; }  // empty: none
  const std::string& problem() const noexcept { return problem_; }            // empty: none
  std::uint64_t bytes_left_out() const noexcept { return bytes_left_out_; }
  // Warm-ups for which this process was the one that reads from the disk.
  std::uint64_t elections() const noexcept { return elections_; }

  // Takes the outcome of a warm-up that has ended; begins another one without locking where that
  // was refused.
  void advance();
  // Begins a warm-up again: brings back what the system took, and makes the rest look used.
  // Precondition: !is_warming().
  void touch();
  // The same, and locks it if that is not refused again. Precondition: !is_warming().
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
  std::optional<Warmer> warmer_;  // ends before the checkpoint does
};

}  // namespace weightmap::cli::hold
