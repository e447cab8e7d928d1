#include "runtime/services/verify/storage_summer.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/storage_offsets.hpp"

namespace weightmap {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

std::string record_name(const catalog::Catalog& catalog, const catalog::StorageEntry& storage) {
  return zip::storage_record(catalog.text(storage.key));
}

}  // namespace

StorageSummer::StorageSummer(const Sources& sources, const catalog::Catalog& catalog,
                             Progress progress)
    : sources_(sources),
      catalog_(catalog),
      progress_(std::move(progress)),
      chunk_(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes)) {
  for (const catalog::StorageEntry& storage : catalog.storages()) total_ += storage.nbytes;
}

bool StorageSummer::check(std::size_t index, CrcReport& report,
                          const std::atomic<bool>& cancelled) {
  const catalog::StorageEntry& storage = catalog_.storages()[index];
  if (storage.crc32 == 0 && storage.nbytes > 0) {
    ++report.storages_without_crc;
    return advance(storage.nbytes, report);
  }
  const Result<std::optional<std::uint32_t>> sum = crc_of(storage, report, cancelled);
  if (sum && !*sum) return false;
  ++report.storages_checked;
  if (!sum)
    report.faults.push_back(sum.error());
  else if (**sum != storage.crc32)
    report.faults.push_back(difference(index, **sum));
  return true;
}

Result<std::optional<std::uint32_t>> StorageSummer::crc_of(const catalog::StorageEntry& storage,
                                                           CrcReport& report,
                                                           const std::atomic<bool>& cancelled) {
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < storage.nbytes;) {
    if (cancelled) return std::nullopt;
    const std::span<std::byte> part(chunk_.get(), static_cast<std::size_t>(std::min<std::uint64_t>(
                                                      chunk_bytes, storage.nbytes - done)));
    TRY(sources_.read(storage.position + done, part));
    crc = zip::crc32(part, crc);
    done += part.size();
    if (!advance(part.size(), report)) return std::nullopt;
  }
  return crc;
}

bool StorageSummer::advance(std::uint64_t nbytes, CrcReport& report) {
  report.bytes += nbytes;
  report.cancelled = progress_ && !progress_(report.bytes, total_);
  return !report.cancelled;
}

// Returns `, the storage of tensor "norm.weight"`, and the number of others; empty if there are
// none.
std::string StorageSummer::users_of(std::size_t storage) {
  if (users_.empty()) {
    users_.resize(catalog_.storages().size());
    for (const catalog::Entry& entry : catalog_.entries()) {
      Users& users = users_[entry.storage];
      if (users.first == nullptr) users.first = &entry;
      ++users.count;
    }
  }
  const auto& [first, count] = users_[storage];
  if (first == nullptr) return {};
  std::string text = ", the storage of tensor " + bytes::quote(catalog_.name(*first));
  if (count > 1) text += " and " + std::to_string(count - 1) + " more";
  return text + ",";
}

Error StorageSummer::difference(std::size_t index, std::uint32_t sum) {
  const catalog::StorageEntry& storage = catalog_.storages()[index];
  return sources_.about_position({ErrorCode::corrupt,
                                  "record " + bytes::quote(record_name(catalog_, storage)) +
                                      " of " + std::to_string(storage.nbytes) + " bytes" +
                                      users_of(index) + zip::crc_mismatch(sum, storage.crc32),
                                  storage.position,
                                  {}});
}

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
