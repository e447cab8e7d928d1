#include "weightmap/warmer.hpp"

#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/warm/warm_work.hpp"

namespace weightmap {

Result<Warmer> Warmer::start(const Checkpoint& checkpoint, const WarmOptions& options) {
  TRY_ASSIGN(std::unique_ptr<WarmWork> work,
             WarmWork::start(Checkpoint::Access::state(checkpoint), options));
  return Warmer(std::move(work));
}

Warmer::Warmer(std::unique_ptr<WarmWork> work) noexcept : work_(std::move(work)) {}
Warmer::Warmer(Warmer&&) noexcept = default;

Warmer& Warmer::operator=(Warmer&& other) noexcept {
  std::swap(work_, other.work_);
  Warmer(std::move(other));  // destroys the old work
  return *this;
}

Warmer::~Warmer() {
  if (work_ && work_->is_of_parent()) WarmWork::give_up(std::move(work_));
}

WarmProgress Warmer::progress() const noexcept {
  WarmProgress progress = work_->progress();
  progress.finished = progress.finished || work_->is_of_parent();
  return progress;
}

void Warmer::passed(std::size_t tensor) {
  if (!work_->is_of_parent()) work_->pass(tensor);
}

void Warmer::cancel() noexcept {
  if (!work_->is_of_parent()) work_->cancel();
}

bool Warmer::wait_for(std::chrono::nanoseconds most) const noexcept {
  return work_->is_of_parent() || work_->wait_for(most);
}

Result<WarmReport> Warmer::wait() {
  if (work_->is_of_parent())
    return failure(ErrorCode::invalid_argument,
                   "the warmer was started before this process was forked: its threads are the "
                   "parent's, so start another");
  return work_->wait();
}

}  // namespace weightmap
