#include "tools/run/plan_reading.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/system/memory/memory_limit.hpp"
#include "tools/run/dropped_pages.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::size_t most_threads = 32;
// How much faster twice as many threads have to be to stay.
constexpr double worth_more = 1.2;
// The rate is looked at after this time, once each thread has read so many units.
constexpr std::chrono::milliseconds least_look{100};
constexpr std::uint64_t units_of_a_look = 2;
constexpr unsigned looks_without_gain = 2;  // end the growing
// A large page: units begin at multiples of it, where a file is read as a whole.
constexpr std::uint64_t unit_bytes = std::uint64_t{2} << 20;
constexpr std::uint64_t pipe_bytes = std::uint64_t{1} << 20;  // what everybody may have
// What it costs less to copy than to do without.
constexpr std::uint64_t small_bytes = std::uint64_t{64} << 10;
// What is left free when the reading ends for lack of memory.
constexpr std::uint64_t memory_reserve = std::uint64_t{256} << 20;
constexpr std::uint64_t bytes_between_looks = std::uint64_t{64} << 20;
// A folder with more is none of modules.
constexpr int most_entries = 10'000;

void copy(const os::File& file, const ByteRange& part) {
  thread_local std::vector<char> scratch(unit_bytes);
  static_cast<void>(
      ::pread(file.descriptor(), scratch.data(), part.length, static_cast<off_t>(part.offset)));
}

}  // namespace

std::optional<os::File> open_planned(const PlannedFile& planned, bool& has_changed) {
  if (drops_pages_at_open(planned.path)) return std::nullopt;
  Result<os::File> file = os::File::open_foreign(planned.path);
  if (!file) return std::nullopt;
  has_changed = file->size() != planned.size || file->generation().mtime_ns != planned.mtime_ns;
  return std::move(*file);
}

std::vector<ByteRange> parts_of(const PlannedFile& file) {
  return file.parts.empty() ? std::vector<ByteRange>{{0, file.size}} : file.parts;
}

PlanReading::PlanReading(const StartPlan& plan, const std::atomic<bool>& stopped,
                         std::size_t first_threads)
    : plan_(plan),
      stopped_(stopped),
      first_threads_(first_threads),
      budget_bytes_(os::memory_limit().usable()) {}

std::optional<PlanReading::Unit> PlanReading::next_unit() {
  const std::lock_guard lock(mutex_);
  if (!current_ || current_->is_left_out || parts_given_ == current_->parts.size()) {
    if (files_begun_ == plan_.files.size()) return std::nullopt;
    const PlannedFile& planned = plan_.files[files_begun_++];
    current_ = std::make_shared<SharedFile>(planned, parts_of(planned));
    parts_given_ = 0;
    bytes_given_ = 0;
  }
  Unit unit{current_, {}};
  std::uint64_t left = unit_bytes;
  while (parts_given_ < current_->parts.size()) {
    const ByteRange& part = current_->parts[parts_given_];
    const std::uint64_t offset = part.offset + bytes_given_, rest = part.length - bytes_given_;
    const bool ends_in_part = rest > left;
    const std::uint64_t now =
        ends_in_part ? std::min(left, unit_bytes - offset % unit_bytes) : rest;
    if (now > 0) unit.parts.push_back({offset, now});
    bytes_given_ += now;
    left -= now;
    if (ends_in_part) break;
    ++parts_given_;
    bytes_given_ = 0;
  }
  return unit;
}

ReadCounts PlanReading::run() {
  add_threads(first_threads_);
  double best = 0;
  Progress before = progress();
  for (unsigned looks_left = looks_without_gain; !wait_for_end();) {
    const Progress now = progress();
    if (looks_left == 0 || now.units - before.units < units_of_a_look * wanted_threads_) continue;
    const double rate = static_cast<double>(now.bytes - before.bytes) /
                        std::chrono::duration<double>(now.at - before.at).count();
    before = now;
    if (rate > worth_more * best) {
      best = rate;
      looks_left = looks_without_gain;
      if (wanted_threads_ < most_threads) add_threads(wanted_threads_);
    } else if (--looks_left == 0) {
      wanted_threads_ = std::max(first_threads_, wanted_threads_ / 2);
    }
  }
  threads_.clear();
  ReadCounts counts;
  counts.files_read = files_;
  counts.files_changed = changed_;
  counts.files_missing = missing_;
  counts.bytes = bytes_;
  counts.ran_out_of_memory = is_short_;
  return counts;
}

// Those that the system refuses are not missed, unless it refuses all: then this thread reads.
void PlanReading::add_threads(std::size_t count) {
  wanted_threads_ += count;
  try {
    for (; count > 0; --count) {
      count_running(1);
      threads_.emplace_back([this, number = threads_.size()] {
        work(number);
        count_running(-1);
      });
    }
  } catch (const std::system_error&) {
    if (threads_.empty()) work(0);
    count_running(-1);
  }
}

void PlanReading::count_running(int change) {
  const std::lock_guard lock(mutex_);
  running_ += change;
  ended_.notify_all();
}

bool PlanReading::wait_for_end() {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, least_look, [this] { return running_ == 0; });
}

void PlanReading::work(std::size_t thread) {
  PageSink sink(pipe_bytes);
  while (!is_over() && thread < wanted_threads_) {
    const std::optional<Unit> unit = next_unit();
    if (!unit) return;
    read(*unit, sink);
    ++units_read_;
  }
}

void PlanReading::read(const Unit& unit, PageSink& sink) {
  SharedFile& shared = *unit.shared;
  std::call_once(shared.once, [this, &shared] { open(shared); });
  if (shared.is_left_out) return;
  for (const ByteRange& part : unit.parts) {
    if (part.length <= small_bytes || !sink.take(*shared.file, part)) copy(*shared.file, part);
    const std::uint64_t cached =
        shared.before ? shared.before->cached_bytes(part.offset, part.length) : 0;
    bytes_ += part.length - cached;
    if (part.length > small_bytes && cached < part.length) copies_.add(shared.file, part);
    look_at_memory(part.length);
  }
}

void PlanReading::open(SharedFile& shared) {
  look_into_folder_of(shared.planned.path);
  bool has_changed = false;
  std::optional<os::File> file = open_planned(shared.planned, has_changed);
  ++(!file ? missing_ : has_changed ? changed_ : files_);
  shared.is_left_out = !file || has_changed;
  if (shared.is_left_out) return;
  shared.file = std::make_shared<const os::File>(std::move(*file));
  if (Result<mmap::CachedPages> pages = mmap::CachedPages::of(*shared.file))
    shared.before = std::move(*pages);
}

// A command that imports modules lists their folders, and looks for names in them.
void PlanReading::look_into_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().native();
  {
    const std::lock_guard lock(mutex_);
    if (!folders_.insert(folder).second) return;
  }
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  for (int left = most_entries; left > 0 && ::readdir(entries) != nullptr; --left) {
  }
  ::closedir(entries);
}

void PlanReading::look_at_memory(std::uint64_t more_bytes) {
  const std::uint64_t before = looked_at_.fetch_add(more_bytes);
  if (before + more_bytes > budget_bytes_) is_short_ = true;
  if (before % bytes_between_looks >= more_bytes) return;
  const os::MemoryLimit limit = os::memory_limit();
  if (limit.available != os::MemoryLimit::unknown && limit.available < memory_reserve)
    is_short_ = true;
}

}  // namespace weightmap::cli::start
