#include "tools/run/start_learner.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/process_maps.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/page_size.hpp"
#include "tools/run/dropped_pages.hpp"
#include "tools/run/files_in_use.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

// A gap of this size costs a disk less than a second read.
constexpr std::uint64_t largest_gap = std::uint64_t{128} << 10;
// A file that was read and not mapped is planned whole up to here, and else as far as it is cached.
constexpr std::uint64_t largest_read_whole = std::uint64_t{1} << 20;
constexpr std::uint64_t smallest_weights = std::uint64_t{64} << 20;
// Of a page in /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
constexpr std::uint64_t entry_is_present = std::uint64_t{1} << 63;
constexpr std::uint64_t entries_a_read = 65536;
constexpr unsigned looks_per_page_look = 20;
constexpr std::size_t most_bytecode_files = 100'000;

// Marks pages of a file that are in the page table of a process.
void mark_used(const Descriptor& pagemap, const MappedPart& part, std::vector<bool>& used) {
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t count = (part.end - part.begin) / page;
  const std::uint64_t first = part.offset / page;
  if (used.size() < first + count) used.resize(first + count);
  std::vector<std::uint64_t> entries(std::min<std::uint64_t>(count, entries_a_read));
  for (std::uint64_t at = 0; at < count;) {
    const std::uint64_t wanted = std::min<std::uint64_t>(entries.size(), count - at);
    const ssize_t got = ::pread(pagemap.get(), entries.data(), wanted * sizeof entries[0],
                                static_cast<off_t>((part.begin / page + at) * sizeof entries[0]));
    if (got < static_cast<ssize_t>(sizeof entries[0])) return;
    const std::uint64_t read = static_cast<std::uint64_t>(got) / sizeof entries[0];
    for (std::uint64_t i = 0; i < read; ++i)
      if ((entries[i] & entry_is_present) != 0) used[first + at + i] = true;
    at += read;
  }
}

std::vector<bool> cached_pages(const os::File& file) {
  const std::uint64_t page = os::page_bytes();
  std::vector<bool> cached((file.size() + page - 1) / page, file.size() <= largest_read_whole);
  if (file.size() <= largest_read_whole) return cached;
  const Result<mmap::CachedPages> pages = mmap::CachedPages::of(file);
  for (std::size_t i = 0; i < cached.size(); ++i)
    cached[i] = pages ? pages->cached_bytes(i * page, 1) != 0 : file.size() < smallest_weights;
  return cached;
}

// Empty: all of the file.
std::vector<ByteRange> parts_of(const std::vector<bool>& pages, std::uint64_t size) {
  const std::uint64_t page = os::page_bytes();
  std::vector<ByteRange> parts;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::uint64_t offset = i * page;
    if (!pages[i] || offset >= size) continue;
    const std::uint64_t end = std::min(offset + page, size);
    if (!parts.empty() && offset - (parts.back().offset + parts.back().length) <= largest_gap)
      parts.back().length = end - parts.back().offset;
    else
      parts.push_back({offset, end - offset});
  }
  if (parts.size() == 1 && parts[0].length == size) parts.clear();
  return parts;
}

// Returns the folder that holds a Python's modules, of a path in it; empty if there is none.
std::string module_folder_of(const std::string& path) {
  fs::path folder;
  for (const fs::path& part : fs::path(path)) {
    folder /= part;
    const std::string& name = part.native();
    if (name == "site-packages" || name == "dist-packages" ||
        (name.starts_with("python3") && fs::path(path).filename() != part))
      return folder.native();
  }
  return {};
}

bool is_cached(const std::string& path) {
  if (drops_pages_at_open(path)) return false;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  char byte = 0;
  iovec into{&byte, 1};
  return file.get() >= 0 && ::preadv2(file.get(), &into, 1, 0, RWF_NOWAIT) == 1;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StartLearner::StartLearner(ProcessTree& processes, std::vector<std::string> weights,
                           OpenedFiles opened)
    : processes_(processes),
      weights_(std::move(weights)),
      opened_(std::move(opened)),
      began_ns_(now_ns()) {}

void StartLearner::note(const std::string& path) {
  if (is_plannable(path)) files_.try_emplace(path, File{files_.size(), {}});
}

void StartLearner::look() {
  const bool with_pages = looks_++ % looks_per_page_look == looks_per_page_look - 1;
  if (with_pages) processes_.update();
  if (opened_.is_watching())
    opened_.take([this](const FileEvent& event) {
      // A process that has ended by now is known by the mount.
      if (!event.is_of_namespace && !processes_.contains(event.process)) return;
      if (event.is_opened) note(event.path);
      if (event.is_opened && event.is_regular && has_own_content(event.path))
        opened_paths_.insert(event.path);
      if (event.is_written) written_.insert(event.number);
    });
  for (const pid_t process : processes_.members()) {
    if (!opened_.is_watching())
      for (const std::string& path : open_files(process)) note(path);
    if (with_pages || !opened_.is_watching()) look_at_mappings(process, with_pages);
  }
}

void StartLearner::look_at_mappings(pid_t process, bool with_pages) {
  const std::string pagemap_path = "/proc/" + std::to_string(process) + "/pagemap";
  const Descriptor pagemap(with_pages ? ::open(pagemap_path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  for (const MappedPart& part : mapped_parts(process)) {
    note(part.path);
    if (pagemap.get() >= 0 && !is_for_another_reader(part.path, part.end - part.begin))
      mark_used(pagemap, part, files_.at(part.path).used_pages);
  }
}

void StartLearner::add_bytecode() {
  std::set<std::string> folders;
  for (const auto& [path, file] : files_)
    if (path.ends_with(".so")) folders.insert(module_folder_of(path));
  std::size_t left = most_bytecode_files;
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    std::error_code error;
    for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end && left > 0;
         at.increment(error)) {
      if (at->path().extension() != ".pyc") continue;
      --left;
      if (is_cached(at->path().native())) note(at->path().native());
    }
  }
}

bool StartLearner::is_for_another_reader(const std::string& path, std::uint64_t size) const {
  return size >= smallest_weights &&
         std::any_of(weights_.begin(), weights_.end(), [&path](const std::string& weights) {
           return path == weights || path.starts_with(weights + "/");
         });
}

std::set<std::string> StartLearner::paths() const {
  std::set<std::string> paths = opened_paths_;
  for (const auto& [path, file] : files_) paths.insert(path);
  return paths;
}

StartPlan StartLearner::plan(std::string key) {
  looks_ = looks_per_page_look - 1;
  look();
  if (!opened_.is_watching()) add_bytecode();
  std::vector<std::pair<std::size_t, PlannedFile>> planned;
  for (const auto& [path, seen] : files_) {
    if (drops_pages_at_open(path)) continue;  // of who has it open now, and of the next
    const Result<os::File> file = os::File::open_foreign(path);
    if (!file || file->generation().mtime_ns >= began_ns_ ||
        is_for_another_reader(path, file->size()))
      continue;
    const bool was_mapped =
        std::find(seen.used_pages.begin(), seen.used_pages.end(), true) != seen.used_pages.end();
    PlannedFile entry{path, file->size(), file->generation().mtime_ns,
                      parts_of(was_mapped ? seen.used_pages : cached_pages(*file), file->size())};
    planned.emplace_back(seen.order, std::move(entry));
  }
  std::sort(planned.begin(), planned.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  StartPlan plan{std::move(key), {}};
  for (auto& [order, file] : planned) plan.files.push_back(std::move(file));
  return plan;
}

}  // namespace weightmap::cli::start
