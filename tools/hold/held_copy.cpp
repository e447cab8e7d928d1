#include "tools/hold/held_copy.hpp"

#include <utility>

#include "tools/hold/file_generation.hpp"

namespace weightmap::cli::hold {

// The generation is asked for before the file is opened: if it is replaced in between, it looks
// replaced later, too.
Result<std::unique_ptr<HeldCopy>> HeldCopy::open(const std::filesystem::path& path,
                                                 bool wants_lock) {
  const Result<Generation> generation = generation_at(path);
  if (!generation) return tl::unexpected<Error>(generation.error());
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  std::unique_ptr<HeldCopy> copy(new HeldCopy(std::move(*checkpoint), *generation, wants_lock));
  if (Result<void> begun = copy->touch(); !begun) return tl::unexpected<Error>(begun.error());
  return copy;
}

Result<void> HeldCopy::touch() {
  WarmOptions options;
  options.one_reader = true;
  options.lock = wants_lock_;
  Result<Warmer> warmer = Warmer::start(checkpoint_, options);
  if (!warmer) return tl::unexpected<Error>(warmer.error());
  warmer_.emplace(std::move(*warmer));
  return {};
}

Result<void> HeldCopy::advance() {
  if (!warmer_ || !warmer_->progress().finished) return {};
  Result<WarmReport> report = warmer_->wait();
  warmer_.reset();
  if (!report && wants_lock_) {
    // Whatever it was: without locking it shows whether the file itself is at fault.
    wants_lock_ = false;
    is_locked_ = false;
    lock_refusal_ = report.error().message;
    return touch();
  }
  if (!report) return tl::unexpected<Error>(report.error());
  is_locked_ = wants_lock_;
  bytes_left_out_ = report->bytes_left_out;
  return {};
}

}  // namespace weightmap::cli::hold
