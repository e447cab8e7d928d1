#include "tools/hold/held_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/surroundings.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli::hold {

namespace {

std::string hex_of(const std::array<std::byte, 32>& sum) {
  std::string digits;
  for (const std::byte each : sum) digits += fmt::format("{:02x}", static_cast<unsigned>(each));
  return digits;
}

Result<std::vector<FileSum>> sums_of(const Checkpoint& checkpoint, const WantedDigests& wanted) {
  std::vector<FileSum> sums;
  if (!wanted.are_wanted()) return sums;
  for (const SourceInfo& source : files_of(checkpoint)) {
    const std::filesystem::path file = source.path;
    TRY_ASSIGN(sums.emplace_back(), wanted_sum(file, file.filename().native(), wanted));
  }
  return sums;
}

}  // namespace

Result<FileSum> wanted_sum(const std::filesystem::path& file, const std::string& name,
                           const WantedDigests& wanted, const StoreSum& said) {
  for (const std::string& key : {name, std::string()})
    if (const auto found = wanted.sums.find(key); found != wanted.sums.end())
      return FileSum{file, hex_of(found->second), "as was asked for"};
  if (!wanted.sums.empty())
    return failure(ErrorCode::invalid_argument,
                   "cannot be held: --sums has no line for " + printable(name));
  if (said.sha256) return FileSum{file, hex_of(*said.sha256), "as its store says"};
  return failure(ErrorCode::invalid_argument, "cannot be held: no SHA-256 of " + printable(name) +
                                                  " is known, which is required");
}

HeldCopy::~HeldCopy() { stops_ = true; }  // the future waits for the thread

Result<std::unique_ptr<HeldCopy>> HeldCopy::open(const std::filesystem::path& path, bool wants_lock,
                                                 const WantedDigests& wanted) {
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, OpenOptions::to_look()));
  if (drops_pages_at_open(checkpoint))
    return failure(ErrorCode::unsupported,
                   "cannot be held: its file system drops what is in memory of a file, locked or "
                   "not, whenever anybody opens the file; weightmap stage copies it into shared "
                   "memory, which stays");
  TRY_ASSIGN(std::vector<FileSum> sums, sums_of(checkpoint, wanted));
  std::unique_ptr<HeldCopy> copy(new HeldCopy(std::move(checkpoint), std::move(sums), wants_lock));
  copy->may_lose_pages_ =
      std::ranges::any_of(surroundings(copy->checkpoint_).files,
                          [](const FileSurroundings& file) { return is_remote(file.file_system); });
  copy->touch();
  return copy;
}

bool HeldCopy::has_lost_pages() const {
  if (!may_lose_pages_) return false;
  const Result<ResidencyReport> seen = residency(checkpoint_);
  return seen && seen->file.resident_bytes + bytes_left_out_ < checkpoint_.info().file_bytes;
}

void HeldCopy::compare() {
  const auto goes_on = [this](std::uint64_t, std::uint64_t) { return !stops_; };
  try {
    comparing_ = std::async(std::launch::async, [this, goes_on] {
      std::vector<std::filesystem::path> files;
      for (const FileSum& sum : sums_) files.push_back(sum.file);
      return compare_sums(files, sums_, goes_on);
    });
  } catch (const std::system_error& error) {  // the next look begins again, with a warm-up
    is_locked_ = false;
    problem_ = std::string("cannot start a thread: ") + error.what();
  }
}

// A file that was replaced meanwhile is found out at the next look, whatever was compared here.
void HeldCopy::take_comparison() {
  if (comparing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  const SumReport report = comparing_.get();
  is_compared_ = true;
  if (report.faults.empty()) return;
  is_refused_ = true;
  is_locked_ = false;
  problem_ = report.faults.front().message;
  Result<Checkpoint> unmapped = checkpoint_.reopen();
  if (unmapped && unmapped->source(0).generation.same_content(generation()))
    checkpoint_ = std::move(*unmapped);
}

void HeldCopy::touch() {
  if (is_refused_) return;
  WarmOptions options;
  options.one_reader = true;
  options.lock = wants_lock_;
  Result<Warmer> warmer = Warmer::start(checkpoint_, options);
  if (warmer)
    warmer_.emplace(std::move(*warmer));
  else
    problem_ = warmer.error().message;
}

void HeldCopy::lock() {
  wants_lock_ = true;
  lock_refusal_.clear();
  touch();
}

void HeldCopy::advance() {
  if (comparing_.valid()) return take_comparison();
  if (!warmer_ || !warmer_->progress().finished) return;
  Result<WarmReport> report = warmer_->wait();
  warmer_.reset();
  is_locked_ = report && wants_lock_;
  problem_ = report ? "" : report.error().message;
  if (report) {
    bytes_left_out_ = report->bytes_left_out;
    elections_ += report->was_reader ? 1 : 0;
  }
  if (report && !is_compared_ && !sums_.empty()) return compare();
  if (report || !wants_lock_) return;
  // Whatever the failure was: a retry without locking shows whether the file itself is at fault.
  wants_lock_ = false;
  lock_refusal_ = std::exchange(problem_, {});
  touch();
}

}  // namespace weightmap::cli::hold
