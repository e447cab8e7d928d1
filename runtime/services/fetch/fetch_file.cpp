#include "runtime/services/fetch/fetch_file.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "mmap/reservation.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/range_set.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/open.hpp"
#include "runtime/services/fetch/compare_sum.hpp"
#include "runtime/services/fetch/destination.hpp"
#include "runtime/services/fetch/fetched_version.hpp"
#include "runtime/services/fetch/fetching.hpp"
#include "runtime/services/fetch/file_content.hpp"
#include "runtime/services/fetch/journal.hpp"
#include "runtime/services/fetch/part_file.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "runtime/services/fetch/whole_file.hpp"
#include "runtime/services/warm/staged_file.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t read_step = std::uint64_t{16} << 20;
std::uint64_t bytes_of(const std::vector<ByteRange>& ranges) {
  std::uint64_t all = 0;
  for (const ByteRange& range : ranges) all += range.length;
  return all;
}

// For the most requests that a source has on their way by itself, and some that are written.
constexpr std::uint64_t enough_buffers = 80;

// Two at least: one is received while the other one is written.
std::size_t most_buffers(std::uint64_t all_bytes, std::uint64_t buffer_bytes) {
  if (all_bytes == 0) all_bytes = os::memory_limit().usable() / 4;
  const std::uint64_t affordable = all_bytes / buffer_bytes;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(affordable, 2, enough_buffers));
}

// Where in a page of the file an offset lies, the same as in a page of memory (DirectWriter).
std::uint64_t in_page(std::uint64_t offset) noexcept { return offset % os::page_bytes(); }

// Receives a file in a few buffers, and writes it to the disk.
class IntoFile final : public Destination {
 public:
  // The part must outlive this. No range is longer than `chunk_bytes`.
  IntoFile(PartFile& part, std::uint64_t chunk_bytes, std::uint64_t all_bytes);

  bool prepare(ByteRange) override { return false; }
  Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) override;
  Result<void> keep(ByteRange range, std::span<std::byte> bytes) override {
    return part_.write(range.offset, bytes);
  }
  void take_back(ByteRange range, std::span<std::byte> bytes) override;
  Result<void> settle() override { return part_.settle(); }

 private:
  Result<std::byte*> take_buffer();

  PartFile& part_;
  const std::size_t buffer_bytes_;
  const std::size_t most_buffers_;
  std::mutex mutex_;                        // protects the following members
  std::vector<mmap::Reservation> buffers_;  // all
  std::vector<std::byte*> free_;            // those that are not in use
};

IntoFile::IntoFile(PartFile& part, std::uint64_t chunk_bytes, std::uint64_t all_bytes)
    : part_(part),
      buffer_bytes_(static_cast<std::size_t>(chunk_bytes + os::page_bytes())),
      most_buffers_(most_buffers(all_bytes, buffer_bytes_)) {}

// nullptr: all are in use.
Result<std::byte*> IntoFile::take_buffer() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && buffers_.size() < most_buffers_) {
    mmap::Reservation buffer(buffer_bytes_, os::large_page, mmap::Reservation::Access::write);
    if (buffer.is_empty())
      return tl::unexpected<Error>(
          os::os_error("get " + std::to_string(buffer_bytes_) + " bytes of memory", errno));
    free_.push_back(buffer.bytes().data());
    buffers_.push_back(std::move(buffer));
  }
  if (free_.empty()) return nullptr;
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

Result<std::optional<std::span<std::byte>>> IntoFile::memory_for(ByteRange range) {
  TRY_ASSIGN(std::byte* const buffer, take_buffer());
  if (buffer == nullptr) return std::nullopt;
  return std::span<std::byte>(buffer + in_page(range.offset), range.length);
}

void IntoFile::take_back(ByteRange range, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  free_.push_back(bytes.data() - in_page(range.offset));
}

// One call of fetch_file().
class FileFetch {
 public:
  FileFetch(const FetchFile& what, const FetchOptions& options, PartFile& part)
      : what_(what),
        options_(options),
        part_(part),
        buffer_(static_cast<std::size_t>(std::min(read_step, what.file.file.size()))),
        destination_(part, std::min(longest_piece(options), what.file.file.size()),
                     what.buffer_bytes),
        sums_(sums_of(state(), what.file, options)),
        known_(known_sum(what.file.name_beside, *what.file.remote->source(), options, what.beside)),
        fetching_(*what.file.remote->source(), destination_, plan(), sums_, what.file.file.size(),
                  running_sum()) {}

  Result<FetchReport> run() {
    TRY(known_);
    Result<void> fetched = take_present();
    if (fetched) fetched = fetching_.run(options_.progress);
    // Also what a failed fetch has received, for the one that goes on after it.
    Result<void> synced = part_.sync();
    TRY(fetched);
    TRY(synced);
    TRY(compare_with_sum());
    if (what_.is_checkpoint) TRY(check_copy(what_.checkpoint, part_.file().descriptor()));
    FetchReport report = fetching_.report();
    report.version = what_.file.remote->version();
    report.resumed_bytes = resumed_bytes_;
    known_->add_to(report);
    return report;
  }

 private:
  const Checkpoint::State& state() const noexcept {
    return Checkpoint::Access::state(what_.checkpoint);
  }

  FetchPlan plan() const {
    bytes::RangeSet present = part_.present();
    for (const ByteRange& range : what_.file.remote->arrived()) present.add(range);
    return plan_of(state(), what_.file, present, sums_, options_);
  }

  RunningSum* running_sum() {
    if (!known_ || !known_->digest) return nullptr;
    part_.keep_cached();
    return &whole_.emplace(part_.file());
  }

  // A part of other bytes is of no use to a later fetch.
  Result<void> compare_with_sum() {
    if (!whole_) return {};
    Result<void> same = compare_sum(*known_, *whole_, options_.progress);
    if (!same && same.error().code == ErrorCode::corrupt) part_.remove_files();
    return same;
  }

  // What the disk has is only read to be compared; what the metadata has, goes to the disk.
  Result<void> take_present() {
    const bytes::RangeSet on_disk = part_.present();
    resumed_bytes_ = bytes_of(on_disk.ranges());
    for (const ByteRange& range : on_disk.ranges()) {
      if (sums_.is_empty())
        fetching_.add_unsummed(range);
      else
        TRY(take(range, false));
    }
    for (const ByteRange& arrived : what_.file.remote->arrived())
      for (const ByteRange& range : on_disk.missing(arrived)) TRY(take(range, true));
    return {};
  }

  Result<void> take(ByteRange range, bool is_new) {
    for (std::uint64_t done = 0; done < range.length;) {
      const std::uint64_t at = range.offset + done;
      const auto bytes = std::span(buffer_).first(std::min(read_step, range.length - done));
      TRY((is_new ? what_.file.file : part_.file()).read(at, bytes));
      if (is_new) TRY(part_.write(at, bytes));
      fetching_.add_present({at, bytes.size()}, bytes);
      done += bytes.size();
      TRY(go_on(options_.progress, taken_bytes_ += bytes.size(), what_.file.file.size()));
    }
    return {};
  }

  const FetchFile& what_;
  const FetchOptions& options_;
  PartFile& part_;
  std::vector<std::byte> buffer_;
  IntoFile destination_;
  StorageSums sums_;
  const Result<KnownSum> known_;
  std::optional<RunningSum> whole_;  // if a digest is known
  Fetching fetching_;
  std::uint64_t resumed_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
};

Result<PartFile> open_part(const FetchFile& what) {
  const ArrivingFile& remote = *what.file.remote;
  std::string journal = what.journal;
  if (journal.empty() && is_exact(remote.version()))
    journal = first_line(source_text(*remote.source()), remote.version());
  return PartFile::open(what.path, journal, remote.version().size);
}

Result<void> publish(const FetchFile& what, PartFile& part) {
  const ArrivingFile& remote = *what.file.remote;
  note_version(part.file().descriptor(), *remote.source(), remote.version());
  return part.publish(what.replaces);
}

Result<FetchReport> fetch_into_part(const FetchFile& what, const FetchOptions& options,
                                    PartFile& part) {
  const auto began = std::chrono::steady_clock::now();
  TRY_ASSIGN(FetchReport report, FileFetch(what, options, part).run());
  report.path = what.path;
  report.time = std::chrono::steady_clock::now() - began;
  return report;
}

}  // namespace

Result<FetchReport> fetch_file(const FetchFile& what, const FetchOptions& options) {
  TRY_ASSIGN(PartFile part, open_part(what));
  TRY_ASSIGN(FetchReport report, fetch_into_part(what, options, part));
  TRY(publish(what, part));
  return report;
}

Result<FetchReport> fetch_part(const FetchFile& what, const FetchOptions& options) {
  TRY_ASSIGN(PartFile part, open_part(what));
  return fetch_into_part(what, options, part);
}

Result<void> publish_part(const FetchFile& what) {
  TRY_ASSIGN(PartFile part, open_part(what));
  if (part.is_whole()) return publish(what, part);
  return failure(ErrorCode::io, "is no longer whole: another fetch of it has begun meanwhile");
}

Result<Checkpoint> open_to_fetch(std::shared_ptr<RangeSource> source) {
  TRY_ASSIGN(const OpenOptions options, with_defaults(OpenOptions::to_look()));
  TRY_ASSIGN(std::shared_ptr<ArrivingFile> file,
             ArrivingFile::in_memory(std::move(source), Ends::in_turn));
  return open_arriving(std::move(file), options, ViewMemory::unused);
}

namespace {

Result<void> check_target(const std::filesystem::path& path, bool replaces) {
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::symlink_status(path, none);
  if (!std::filesystem::exists(there)) return {};
  if (!replaces) return failure(ErrorCode::invalid_argument, "is there already; remove it first");
  if (std::filesystem::is_regular_file(there)) return {};
  return failure(ErrorCode::invalid_argument, "is not a regular file");
}

Result<Checkpoint> open_single(RangeSource& source) {
  // The caller owns it.
  const std::shared_ptr<RangeSource> borrowed(std::shared_ptr<void>(), &source);
  Result<Checkpoint> opened = open_to_fetch(borrowed);
  if (opened && Checkpoint::Access::state(*opened).is_set())
    opened =
        failure(ErrorCode::unsupported, "is a checkpoint of several files; fetch it into a folder");
  if (!opened) return about_file(std::move(opened.error()), source.name());
  return opened;
}

}  // namespace

Result<FetchReport> fetch(RangeSource& source, const std::filesystem::path& path,
                          const FetchOptions& options, bool replaces) {
  TRY(about_file(check_target(path, replaces), path));
  const Result<Checkpoint> opened = open_single(source);
  if (!opened && only_whole(source) != nullptr) return fetch_whole(source, path, options, replaces);
  TRY(opened);
  const Checkpoint& checkpoint = *opened;
  const SourceFile& file = Checkpoint::Access::state(checkpoint).sources.front();
  TRY(about_file(sum_for(file.name_beside, options), path));
  return about_file(fetch_file({checkpoint, file, path, replaces, true}, options), path);
}

}  // namespace weightmap
