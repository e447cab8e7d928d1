#include "weightmap/warmer.hpp"

#include <utility>

#include "mmap/memory/memory_limit.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"
#include "runtime/warm/warm_work.hpp"

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
  Warmer(std::move(other));  // ends what this one did
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

CrcReport Checkpoint::verify_crc(
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  WarmOptions options;
  options.verify_crc = true;
  options.budget_bytes = os::MemoryLimit::unknown;  // each page is needed once: it may go again
  const Result<std::unique_ptr<WarmWork>> work = WarmWork::start(*state_, options, progress);
  if (work) {
    Result<WarmReport> report = (*work)->wait();
    if (report && report->storages_left_out == 0) return std::move(report->crc);
  }
  // Without threads, or past what could not be read, to say of each storage what is wrong with it.
  const Result<const catalog::Catalog*> catalog = state_->catalogs.whole();
  CrcReport report;
  if (catalog)
    report = verify_storage_crcs(state_->sources, **catalog, progress);
  else
    report.faults.push_back(state_->sources.front().about(catalog.error()));
  return report;
}

}  // namespace weightmap
