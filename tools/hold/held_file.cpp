#include "tools/hold/held_file.hpp"

#include <utility>

#include "tools/hold/file_generation.hpp"
#include "tools/text.hpp"
#include "weightmap/residency.hpp"

namespace weightmap::cli::hold {
namespace {

Json describe_generation(const Generation& generation) {
  return {{"device", generation.device},
          {"inode", generation.inode},
          {"size", generation.size},
          {"mtime_ns", generation.mtime_ns}};
}

}  // namespace

Result<HeldFile> HeldFile::open(std::filesystem::path path, bool wants_lock, Say say) {
  Result<std::unique_ptr<HeldCopy>> copy = HeldCopy::open(path, wants_lock);
  if (!copy) return tl::unexpected<Error>(copy.error());
  return HeldFile(std::move(path), std::move(*copy), wants_lock, std::move(say));
}

HeldFile::HeldFile(std::filesystem::path path, std::unique_ptr<HeldCopy> copy, bool wants_lock,
                   Say say)
    : path_(std::move(path)),
      wants_lock_(wants_lock),
      say_(std::move(say)),
      current_(std::move(copy)) {}

void HeldFile::advance() {
  if (Result<void> ok = current_->advance(); !ok) {
    note_problem(ok.error().message);
    was_said_ = true;
  }
  if (!current_->is_warming() && !was_said_) {
    was_said_ = true;
    say_(printable(path_.native()) + ": held, " +
         (current_->is_locked()              ? "locked in memory"
          : current_->lock_refusal().empty() ? "not locked"
                                             : "not locked: " + current_->lock_refusal()));
  }
  if (next_) finish_reload();
}

void HeldFile::finish_reload() {
  if (Result<void> ok = next_->advance(); !ok) {
    refused_ = next_->generation();
    next_.reset();
    return note_problem(ok.error().message);
  }
  if (next_->is_warming()) return;
  current_ = std::move(next_);
  ++reloads_;
  problem_.clear();
  refused_.reset();
  was_said_ = false;
  say_(printable(path_.native()) +
       ": was replaced; the new file is in memory, the old one released");
}

void HeldFile::look() {
  if (is_warming()) return;
  const Result<Generation> found = generation_at(path_);
  if (!found) return note_problem(found.error().message);
  if (!found->same_content(current_->generation()))
    if (!refused_ || !found->same_content(*refused_)) return begin_reload(*found);
  if (found->same_content(current_->generation())) {
    problem_.clear();
    refused_.reset();
  }
  if (current_->is_locked() && current_->bytes_left_out() == 0) return;
  if (Result<void> ok = current_->touch(); !ok) note_problem(ok.error().message);
}

void HeldFile::begin_reload(const Generation& found) {
  Result<std::unique_ptr<HeldCopy>> copy = HeldCopy::open(path_, wants_lock_);
  if (copy) {
    next_ = std::move(*copy);
    return;
  }
  refused_ = found;
  note_problem(copy.error().message);
}

void HeldFile::note_problem(const std::string& problem) {
  if (problem == problem_) return;
  problem_ = problem;
  say_(printable(path_.native()) + ": " + problem + "; what is held stays held");
}

Json HeldFile::describe() const {
  const Result<ResidencyReport> seen = residency(current_->checkpoint());
  const Json unknown = nullptr;
  return {{"file", path_.native()},
          {"state", is_reloading() ? "reloading"
                    : was_said_    ? "held"
                                   : "warming"},
          {"locked", current_->is_locked()},
          {"lock_refusal", current_->lock_refusal()},
          {"file_bytes", file_bytes()},
          {"resident_bytes", seen ? Json(seen->file.resident_bytes) : unknown},
          {"cached_bytes", seen ? Json(seen->file.cached_bytes) : unknown},
          {"bytes_left_out", current_->bytes_left_out()},
          {"generation", describe_generation(current_->generation())},
          {"reloads", reloads_},
          {"problem", problem_.empty() ? unknown : Json(problem_)}};
}

}  // namespace weightmap::cli::hold
