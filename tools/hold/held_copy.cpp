#include "tools/hold/held_copy.hpp"

#include <utility>

#include "runtime/base/try.hpp"
#include "weightmap/residency.hpp"

namespace weightmap::cli::hold {

Result<std::unique_ptr<HeldCopy>> HeldCopy::open(const std::filesystem::path& path,
                                                 bool wants_lock) {
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, OpenOptions::to_look()));
  if (drops_pages_at_open(checkpoint))
    return failure(ErrorCode::unsupported,
                   "cannot be held: its file system drops what is in memory of a file, locked or "
                   "not, whenever anybody opens the file; weightmap stage copies it into shared "
                   "memory, which stays");
  std::unique_ptr<HeldCopy> copy(new HeldCopy(std::move(checkpoint), wants_lock));
  copy->touch();
  return copy;
}

void HeldCopy::touch() {
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
  if (!warmer_ || !warmer_->progress().finished) return;
  Result<WarmReport> report = warmer_->wait();
  warmer_.reset();
  is_locked_ = report && wants_lock_;
  problem_ = report ? "" : report.error().message;
  if (report) {
    bytes_left_out_ = report->bytes_left_out;
    elections_ += report->was_reader ? 1 : 0;
  }
  if (report || !wants_lock_) return;
  // Whatever the failure was: a retry without locking shows whether the file itself is at fault.
  wants_lock_ = false;
  lock_refusal_ = std::exchange(problem_, {});
  touch();
}

}  // namespace weightmap::cli::hold
