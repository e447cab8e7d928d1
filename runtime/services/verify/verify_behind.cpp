#include "runtime/services/verify/verify_behind.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weightmap {

VerifyBehind::VerifyBehind(const Sources& sources, const catalog::Catalog& catalog,
                           std::span<const ByteRange> steps, Progress progress)
    : summer_(sources, catalog, std::move(progress)),
      by_offset_(steps.size()),
      done_(steps.size()) {
  std::iota(by_offset_.begin(), by_offset_.end(), std::size_t{0});
  std::sort(by_offset_.begin(), by_offset_.end(),
            [steps](std::size_t a, std::size_t b) { return steps[a].offset < steps[b].offset; });
  for (std::size_t i = 0; i < catalog.storages().size(); ++i)
    add_job(i, catalog.storages()[i], steps);
  std::stable_sort(jobs_.begin(), jobs_.end(),
                   [](const Job& a, const Job& b) { return a.last_step < b.last_step; });
}

void VerifyBehind::add_job(std::size_t storage, const catalog::StorageEntry& entry,
                           std::span<const ByteRange> steps) {
  const std::uint64_t end = entry.position + entry.nbytes;
  const auto reaches = [steps](std::size_t step, std::uint64_t offset) {
    return steps[step].offset + steps[step].length <= offset;
  };
  auto step = std::lower_bound(by_offset_.begin(), by_offset_.end(), entry.position, reaches);
  Job job{storage, static_cast<std::size_t>(step - by_offset_.begin()), 0, 0};
  std::uint64_t covered = entry.position;
  for (; covered < end && step != by_offset_.end() && steps[*step].offset <= covered; ++step) {
    covered = steps[*step].offset + steps[*step].length;
    job.last_step = std::max(job.last_step, *step);
  }
  job.end = static_cast<std::size_t>(step - by_offset_.begin());
  if (covered >= end)
    jobs_.push_back(job);
  else
    ++left_out_;
}

void VerifyBehind::step_done(std::size_t index) {
  const std::lock_guard lock(mutex_);
  done_[index] = true;
  changed_.notify_one();
}

void VerifyBehind::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_one();
}

void VerifyBehind::give_up() {
  given_up_ = true;
  stop();
}

bool VerifyBehind::wait_for(const Job& job) {
  const auto is_done = [this](std::size_t step) { return done_[step]; };
  const auto first = by_offset_.begin() + static_cast<std::ptrdiff_t>(job.first);
  const auto end = by_offset_.begin() + static_cast<std::ptrdiff_t>(job.end);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || std::all_of(first, end, is_done); });
  return std::all_of(first, end, is_done);
}

CrcReport VerifyBehind::run() {
  CrcReport report;
  for (const Job& job : jobs_) {
    if (given_up_ || report.cancelled || !wait_for(job) ||
        !summer_.check(job.storage, report, given_up_))
      ++left_out_;
  }
  return report;
}

}  // namespace weightmap
