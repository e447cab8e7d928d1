#include "tools/hold/held_file.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/surroundings.hpp"
#include "tools/support/text.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli::hold {
namespace {

Json describe_generation(const Generation& generation) {
  return {{"device", generation.device},
          {"inode", generation.inode},
          {"size", generation.size},
          {"mtime_ns", generation.mtime_ns}};
}

std::string lock_words(const HeldCopy& copy) {
  const std::uint64_t left_out = copy.bytes_left_out();
  const std::uint64_t all = copy.checkpoint().info().file_bytes;
  if (copy.is_locked() && left_out == 0) return "locked in memory";
  if (copy.is_locked())
    return human_bytes(all - std::min(all, left_out)) + " locked in memory; " +
           human_bytes(left_out) + " of " + human_bytes(all) + " do not fit";
  if (left_out > 0 && copy.lock_refusal().empty())
    return "not locked; " + human_bytes(left_out) + " of " + human_bytes(all) + " do not fit";
  return copy.lock_refusal().empty() ? "not locked" : "not locked: " + copy.lock_refusal();
}

bool is_on_overlay(const Checkpoint& checkpoint, const SourceInfo& file) {
  const std::vector<FileSurroundings> files = surroundings(checkpoint).files;
  return std::ranges::any_of(files, [&](const FileSurroundings& each) {
    return each.path == file.path && each.file_system == "overlay";
  });
}

}  // namespace

Result<HeldFile> HeldFile::open(std::filesystem::path path, bool wants_lock,
                                const WantedDigests& wanted, Say say) {
  TRY_ASSIGN(std::unique_ptr<HeldCopy> copy, HeldCopy::open(path, wants_lock, wanted));
  return HeldFile(std::move(path), std::move(copy), wants_lock, wanted, std::move(say));
}

HeldFile::HeldFile(std::filesystem::path path, std::unique_ptr<HeldCopy> copy, bool wants_lock,
                   const WantedDigests& wanted, Say say)
    : path_(std::move(path)),
      wants_lock_(wants_lock),
      wanted_(&wanted),
      say_(std::move(say)),
      current_(std::move(copy)) {}

void HeldFile::advance() {
  current_->advance();
  if (next_) finish_reload();
}

void HeldFile::tell() {
  const std::string name = printable(path_.native());
  if (!current_->is_warming() && !was_in_memory_) {
    was_in_memory_ = true;
    if (current_->problem().empty()) say_(name + ": held, " + lock_words(*current_));
  }
  if (problem() == told_problem_) return;
  told_problem_ = problem();
  if (!told_problem_.empty())
    say_(name + ": " + told_problem_ +
         (current_->is_refused() ? "; it is not held" : "; what is held stays held"));
}

void HeldFile::finish_reload() {
  next_->advance();
  if (next_->is_warming()) return;
  if (!next_->problem().empty()) {
    if (next_->is_refused()) refused_ = next_generation_;
    file_problem_ = next_->problem();  // the content is not at fault, so it is tried again
    past_elections_ += next_->elections();
    next_.reset();
    return;
  }
  past_elections_ += current_->elections();
  current_ = std::move(next_);
  // Both versions together may have exceeded the limit.
  if (wants_lock_ && !current_->is_locked()) current_->lock();
  ++reloads_;
  file_problem_.clear();
  refused_.reset();
  was_in_memory_ = false;
  say_(printable(path_.native()) +
       (is_copied_up_ ? ": was copied to the upper layer of its overlay file system, as chmod does"
                      : ": was replaced") +
       "; the new file is in memory, the old one released");
}

Result<std::optional<Generation>> HeldFile::found_generation() const {
  const Checkpoint& held = current_->checkpoint();
  for (std::size_t i = 0; i < held.source_count(); ++i) {
    const SourceInfo& file = held.source(i);
    if (file.is_copy) continue;
    TRY_ASSIGN(const Generation now, generation_at(file.path));
    const bool may_be_another =
        now.ctime_ns != file.generation.ctime_ns && is_on_overlay(held, file);
    if (may_be_another || !now.same_content(file.generation)) return now;
  }
  return std::nullopt;
}

void HeldFile::look(bool counts) {
  if (is_warming()) return;
  const Result<std::optional<Generation>> found = found_generation();
  if (!found) {
    file_problem_ = found.error().message;
  } else if (!*found) {
    file_problem_.clear();
    refused_.reset();
  } else if (!refused_ || !(*found)->same_content(*refused_)) {
    return begin_reload(**found);
  }
  if (counts) count_evicted();
  if (!current_->is_locked() || current_->bytes_left_out() > 0 || current_->has_lost_pages())
    current_->touch();
}

// Counts bytes that were read and are no longer cached.
void HeldFile::count_evicted() {
  if (!current_->problem().empty()) return;
  const Result<ResidencyReport> seen = residency(current_->checkpoint());
  if (!seen) return;
  const std::uint64_t missing = seen->file.file_bytes - seen->file.cached_bytes;
  const std::uint64_t left_out = std::min(missing, current_->bytes_left_out());
  evicted_bytes_ = evicted_bytes_.value_or(0) + missing - left_out;
}

void HeldFile::begin_reload(const Generation& found) {
  Result<std::unique_ptr<HeldCopy>> copy = HeldCopy::open(path_, wants_lock_, *wanted_);
  if (copy) {
    is_copied_up_ = false;
    for (std::size_t i = 0; i < current_->checkpoint().source_count(); ++i)
      if (found.same_content(current_->checkpoint().source(i).generation)) is_copied_up_ = true;
    next_ = std::move(*copy);
    next_generation_ = found;
    return;
  }
  // A refusal by the system may be temporary.
  if (copy.error().code != ErrorCode::io) refused_ = found;
  file_problem_ = copy.error().message;
}

std::optional<Error> HeldFile::refusal() const {
  if (!current_->is_refused()) return std::nullopt;
  return Error{ErrorCode::corrupt, current_->problem(), Error::no_offset,
               printable(path_.native())};
}

Json HeldFile::describe() const {
  const Result<ResidencyReport> seen = residency(current_->checkpoint());
  const Json unknown = nullptr;
  return {{"file", path_.native()},
          {"state", is_reloading()           ? "reloading"
                    : current_->is_refused() ? "refused"
                    : was_in_memory_         ? "held"
                                             : "warming"},
          {"locked", current_->is_locked()},
          {"lock_refusal", current_->lock_refusal()},
          {"sha256_compared", current_->is_compared()},
          {"file_bytes", file_bytes()},
          {"resident_bytes", seen ? Json(seen->file.resident_bytes) : unknown},
          {"cached_bytes", seen ? Json(seen->file.cached_bytes) : unknown},
          {"bytes_left_out", current_->bytes_left_out()},
          {"generation", describe_generation(current_->generation())},
          {"reloads", reloads_},
          {"elections", past_elections_ + current_->elections()},
          {"evicted_bytes", evicted_bytes_ ? Json(*evicted_bytes_) : unknown},
          {"problem", problem().empty() ? unknown : Json(problem())}};
}

}  // namespace weightmap::cli::hold
