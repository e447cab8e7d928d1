// One version of a file in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/hold/wanted_digests.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli::hold {

// What a file should have, whose name is this one or that of all, "", or of which its store says
// something. Fails with invalid_argument if nothing is known. Precondition: wanted.are_wanted().
Result<FileSum> wanted_sum(const std::filesystem::path& file, const std::string& name,
                           const WantedDigests& wanted, const StoreSum& said = {});

class HeldCopy {
 public:
  // Opens the file that `path` names now, and starts to prefetch it in the background. With
  // `wants_lock` it is locked in memory if the system permits.
  // If digests are wanted, each of its files must be among them, by its name or the only "", and is
  // compared once it is in memory.
  static Result<std::unique_ptr<HeldCopy>> open(const std::filesystem::path& path, bool wants_lock,
                                                const WantedDigests& wanted);
  ~HeldCopy();

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  const Generation& generation() const noexcept { return checkpoint_.source(0).generation; }
  bool is_warming() const noexcept { return warmer_.has_value() || comparing_.valid(); }
  // It has another SHA-256, as problem() says, and was let go of.
  bool is_refused() const noexcept { return is_refused_; }
  bool is_compared() const noexcept { return !sums_.empty() && is_compared_; }
  // After the last finished warm-up.
  bool is_locked() const noexcept { return is_locked_; }
  const std::string& lock_refusal() const noexcept { return lock_refusal_; }  // empty: none
  const std::string& problem() const noexcept { return problem_; }            // empty: none
  std::uint64_t bytes_left_out() const noexcept { return bytes_left_out_; }
  // The number of warm-ups in which this process was the elected reader.
  std::uint64_t elections() const noexcept { return elections_; }

  // A server, such as one of FUSE, has dropped pages of it that are mapped, maybe locked ones.
  bool has_lost_pages() const;

  // Takes the result of a finished warm-up; starts one without locking if that was refused.
  void advance();
  // Starts a warm-up again: reads evicted pages, and marks the others as recently used.
  // Precondition: !is_warming().
  void touch();
  // Does the same, and locks the pages unless that is refused again. Precondition: !is_warming().
  void lock();

 private:
  HeldCopy(Checkpoint checkpoint, std::vector<FileSum> sums, bool wants_lock)
      : checkpoint_(std::move(checkpoint)), sums_(std::move(sums)), wants_lock_(wants_lock) {}

  void compare();
  void take_comparison();

  Checkpoint checkpoint_;
  bool may_lose_pages_ = false;  // that are mapped: the file is a server's
  std::vector<FileSum> sums_;    // of its files; empty: nothing is compared
  bool wants_lock_;
  bool is_compared_ = false;
  bool is_refused_ = false;
  bool is_locked_ = false;
  std::string lock_refusal_;
  std::string problem_;
  std::uint64_t bytes_left_out_ = 0;
  std::uint64_t elections_ = 0;
  std::optional<Warmer> warmer_;  // destroyed before the checkpoint
  std::atomic<bool> stops_ = false;
  std::future<SumReport> comparing_;
};

}  // namespace weightmap::cli::hold
