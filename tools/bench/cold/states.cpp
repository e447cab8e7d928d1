#include "tools/bench/cold/states.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "runtime/base/try.hpp"
#include "tools/support/files.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/inspect.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace weightmap::cli::bench {
namespace {

constexpr int most_evictions = 5;
constexpr std::chrono::milliseconds pause{100};

void touch_pages(const std::byte* memory, std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page)
    [[maybe_unused]] const volatile std::byte value = memory[at];
}

std::string staying(const EvictReport& report) {
  std::string text =
      human_bytes(report.cached_after) + " stay in the page cache: " + staying_text(report);
  if (::geteuid() != 0) text += " (the file's owner and root can evict it)";
  return text;
}

}  // namespace

void WatchedFile::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

Result<WatchedFile> WatchedFile::open(const std::string& path) {
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
  TRY_ASSIGN(std::vector<RawFile> sources, open_sources(checkpoint));
  std::vector<RawFile> files;
  for (RawFile& file : sources)
    if (file.bytes() > 0) files.push_back(std::move(file));
  return WatchedFile(path, std::move(checkpoint), std::move(files));
}

std::uint64_t WatchedFile::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const RawFile& file : files_) sum += file.bytes();
  return sum;
}

WhyNot WatchedFile::prepare(Scenario scenario) {
  if (scenario == Scenario::cold) return make_cold();
  return scenario == Scenario::warm ? make_warm() : make_poisoned();
}

WhyNot WatchedFile::make_cold() {
  release();
  Result<EvictReport> report = evict(path_);
  // Pages that another process has just released may stay for a moment.
  for (int i = 1;
       i < most_evictions && report && report->cached_after > 0 && !report->lives_in_memory; ++i) {
    std::this_thread::sleep_for(pause);
    report = evict(path_);
  }
  if (!report) return to_string(report.error());
  return report->cached_after > 0 ? staying(*report) : WhyNot();
}

WhyNot WatchedFile::make_warm() {
  if (!held_.empty() && is_cached()) return {};
  // Cached pages may be small. If they cannot be evicted, they stay as they are.
  release();
  if (Result<EvictReport> report = evict(path_); !report) return to_string(report.error());
  for (const RawFile& file : files_)
    if (WhyNot why = hold(file); !why.empty()) return why;
  return is_cached() ? WhyNot() : "not all of the file stays in the page cache";
}

WhyNot WatchedFile::hold(const RawFile& file) {
  void* const memory = ::mmap(nullptr, file.bytes(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return to_string(system_error(path_, "cannot be mapped"));
  Mapping mapping(static_cast<std::byte*>(memory), Unmap{file.bytes()});
  ::madvise(memory, file.bytes(), MADV_HUGEPAGE);
  if (::madvise(memory, file.bytes(), MADV_POPULATE_READ) != 0) {
    if (errno != EINVAL) return to_string(system_error(path_, "cannot be brought into memory"));
    touch_pages(mapping.get(), file.bytes());
  }
  held_.push_back(std::move(mapping));
  return {};
}

// Reads in pieces below 2 MiB and as a read-ahead, for which the system does not use huge pages.
WhyNot WatchedFile::make_poisoned() {
  const std::optional<double> before = huge_part();
  if (is_cached() && before && *before < 0.5) return {};
  if (WhyNot why = make_cold(); !why.empty()) return why;
  read_ahead();
  for (int i = 0; i < 100 && !is_cached() && !interrupted(); ++i)
    std::this_thread::sleep_for(pause);
  if (!is_cached()) return "not all of the file could be read ahead into the page cache";
  const std::optional<double> after = huge_part();
  if (!after) return "no range of 2 MiB is cached as a whole, or the system does not say how";
  char text[96];
  std::snprintf(text, sizeof text,
                "this kernel fills the page cache in large pieces whatever is asked (%.0f %%)",
                *after * 100);
  return *after < 0.5 ? WhyNot() : WhyNot(text);
}

void WatchedFile::read_ahead() const noexcept {
  constexpr std::uint64_t step = 128 << 10;
  for (const RawFile& file : files_)
    for (std::uint64_t at = 0; at < file.bytes(); at += step)
      ::readahead(file.descriptor(), static_cast<off64_t>(at), step);
}

bool WatchedFile::is_cached() const {
  const Result<std::uint64_t> cached = cached_bytes();
  return cached && *cached == bytes();
}

Result<std::uint64_t> WatchedFile::cached_bytes() const {
  TRY_ASSIGN(const ResidencyReport report, residency(checkpoint_));
  return report.file.cached_bytes;
}

std::optional<double> WatchedFile::huge_part() const {
  const Result<ResidencyReport> report = residency(checkpoint_);
  if (!report || report->file.sampled_bytes == 0) return std::nullopt;
  return static_cast<double>(report->file.sampled_huge_bytes) /
         static_cast<double>(report->file.sampled_bytes);
}

}  // namespace weightmap::cli::bench
