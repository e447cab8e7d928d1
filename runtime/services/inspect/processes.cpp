#include "runtime/services/inspect/processes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "mmap/pages/process_maps.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/signatures.hpp"
#include "runtime/checkpoint/files_of.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/sets/hub.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/inspect/surroundings.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/file/version_link.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using mmap::MappedArea;

constexpr std::string_view deleted_mark = " (deleted)";
constexpr std::string_view memory_prefix = "/memfd:";
constexpr std::string_view staged_prefix = "/memfd:weightmap:";

bool is_deleted(std::string_view path) noexcept { return path.ends_with(deleted_mark); }

std::string_view without_mark(std::string_view path) noexcept {
  if (is_deleted(path)) path.remove_suffix(deleted_mark.size());
  return path;
}

// Returns the path in the spelling of /proc/PID/maps.
std::string listed(const std::string& path) {
  std::string text;
  for (const char c : path) text += c == '\n' ? std::string("\\012") : std::string(1, c);
  return text;
}

bool exists(std::string_view path) {
  std::error_code ignored;
  return fs::exists(fs::path(path), ignored);
}

// A place where an overlay file system shows a file.
struct Shown {
  std::string device;  // its number
  std::string path;    // below the mount, with a slash in front; in the spelling of /proc/PID/maps
};

// A file given by the caller.
struct Target {
  std::string path;  // in the spelling of /proc/PID/maps
  // The file that has the name now, in the form of /proc/PID/maps; nullopt if there is none.
  std::optional<MappedArea> area;
  std::uint64_t size = 0;
  std::vector<Shown> shown;
  bool is_of_earlier_version = false;  // a link leads to another folder now
};

// What the caller names.
struct Targets {
  std::vector<Target> files;
  std::vector<os::VersionLink> links;  // to one of several versions of a folder
};

// Adds where the overlay shows the file: a layer has it, and none above has one of its name.
// `base` is where layers without a whole path begin.
void add_shown(const os::Overlay& overlay, const fs::path& base, const fs::path& file,
               std::vector<Shown>& shown) {
  for (auto layer = overlay.layers.begin(); layer != overlay.layers.end(); ++layer) {
    std::error_code failed;
    const fs::path below = file.lexically_relative(fs::canonical(base / *layer, failed));
    if (failed || below.empty() || *below.begin() == "..") continue;
    const auto has_one = [&](const fs::path& above) {
      std::error_code unknown;
      return fs::exists(fs::symlink_status(base / above / below, unknown));
    };
    if (std::none_of(overlay.layers.begin(), layer, has_one))
      shown.push_back({overlay.number, listed("/" + below.native())});
  }
}

bool is_on_a_server(const std::string& device) {
  return std::ranges::any_of(os::file_systems_of(device), os::is_remote);
}

// What is asked of the mount table for all files that the caller names.
struct Mounts {
  std::vector<os::Overlay> overlays = os::overlays();
  std::set<std::string> on_servers;  // devices of overlays with a layer there
  os::MayDropCache may_drop_cache;

  Mounts() {
    for (const os::Overlay& overlay : overlays)
      if (is_on_a_server(overlay.number)) on_servers.insert(overlay.number);
  }
};

std::vector<Shown> shown_at(const fs::path& file, const Mounts& mounts) {
  std::vector<Shown> shown;
  bool skips_servers = false;  // which a file that is on none has no need to ask
  if (!mounts.on_servers.empty()) {
    const std::optional<os::Mount> own = os::mount_of(file);
    skips_servers = !own || !is_on_a_server(own->number);
  }
  for (const os::Overlay& overlay : mounts.overlays) {
    if (skips_servers && mounts.on_servers.contains(overlay.number)) continue;
    const bool is_whole = std::all_of(overlay.layers.begin(), overlay.layers.end(),
                                      [](const fs::path& layer) { return layer.is_absolute(); });
    fs::path base = file;
    do {
      base = base.parent_path();
      add_shown(overlay, base, file, shown);
    } while (!is_whole && base != base.parent_path());
  }
  return shown;
}

Result<Target> look_up(const fs::path& file, Mounts& mounts) {
  std::error_code failed;
  fs::path whole = fs::weakly_canonical(file, failed);
  if (failed) whole = fs::absolute(file, failed).lexically_normal();
  Target target;
  target.path = listed(whole.native());
  if (mounts.may_drop_cache(file)) {
    TRY_ASSIGN(const Generation now, generation_at(file));
    target.area.emplace();
    target.area->device = os::mapped_device_of(file).value_or(now.device);
    target.area->inode = now.inode;
    target.size = now.size;
    target.shown = shown_at(whole, mounts);
    return target;
  }
  const Result<os::File> opened = os::File::open(file, false);
  if (!opened && opened.error().os_error == ENOENT) return target;
  if (!opened) return about_file(opened.error(), file);
  TRY_ASSIGN(target.area, about_file(mmap::area_of(*opened), file));
  target.size = opened->size();
  target.shown = shown_at(whole, mounts);
  return target;
}

// A file that can no longer be opened may still be mapped.
std::vector<fs::path> files_to_find(const fs::path& path) {
  std::vector<fs::path> files = unopened_files_of(path);
  if (std::any_of(files.begin(), files.end(), os::MayDropCache())) return files;
  return files_of(path).value_or(std::vector{path});
}

Result<Targets> targets_of(const fs::path& path, std::atomic<unsigned>& steps) {
  Targets targets;
  Mounts mounts;
  const auto add = [&](const fs::path& place, bool is_of_earlier_version) -> Result<void> {
    for (const fs::path& file : files_to_find(place)) {
      ++steps;
      TRY_ASSIGN(Target target, look_up(file, mounts));
      target.is_of_earlier_version = is_of_earlier_version;
      targets.files.push_back(std::move(target));
    }
    return {};
  };
  TRY(add(path, false));
  const Result<os::VersionLink> link = os::VersionLink::at(path);
  if (!link || link->current().empty()) return targets;
  targets.links.push_back(*link);
  for (const fs::path& version : link->known())
    if (version != link->current()) TRY(add(version, true));
  return targets;
}

// Whoever asks a file system whose server is stopped waits for it, perhaps for ever: here a thread,
// or this one, if the system has no more.
Result<Targets> targets_in_time(const fs::path& path) {
  constexpr std::chrono::seconds longest{10};
  const auto steps = std::make_shared<std::atomic<unsigned>>();
  std::packaged_task<Result<Targets>()> ask([path, steps] { return targets_of(path, *steps); });
  std::future<Result<Targets>> answer = ask.get_future();
  try {
    std::thread(std::move(ask)).detach();
  } catch (const std::system_error&) {
    return targets_of(path, *steps);
  }
  unsigned seen = 0;
  do {
    seen = *steps;
    if (answer.wait_for(longest) == std::future_status::ready) return answer.get();
  } while (seen != *steps);
  return about_file({ErrorCode::io,
                     "its file system has not answered within " + std::to_string(longest.count()) +
                         " s; without a file, the processes are listed by the names that they have "
                         "of their files, and no such file system is asked",
                     Error::no_offset,
                     {}},
                    path);
}

// Compares two entries of /proc/PID/maps. stat()'s device differs on btrfs and overlay file
// systems.
bool is_same_file(const MappedArea& a, const MappedArea& b) noexcept {
  return a.device == b.device && a.inode == b.inode;
}

bool has_checkpoint_name(std::string_view path) noexcept {
  constexpr std::array<std::string_view, 6> endings = {".pt",  ".pth",         ".ckpt",
                                                       ".bin", ".safetensors", ".gguf"};
  return std::any_of(endings.begin(), endings.end(),
                     [path](std::string_view ending) { return path.ends_with(ending); });
}

// True for safetensors and GGUF, or an archive with a checkpoint's file name or the pickle as first
// record.
bool begins_as_checkpoint(const os::File& file, std::string_view path) {
  std::array<std::byte, 512> head{};
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), file.size()));
  if (length < zip::local_header_bytes || !file.read(0, {head.data(), length})) return false;
  const format::Kind kind = format::identify_head({head.data(), length});
  if (kind == format::Kind::safetensors || kind == format::Kind::gguf) return true;
  if (bytes::load_le<std::uint32_t>(head.data()) != zip::local_header_signature) return false;
  if (has_checkpoint_name(path)) return true;
  const auto named = bytes::load_le<std::uint16_t>(head.data() + 26);
  const std::string_view rest(reinterpret_cast<const char*>(head.data()) + zip::local_header_bytes,
                              length - zip::local_header_bytes);
  const std::string_view name = rest.substr(0, named);
  return name == torch::pickle_record || name.ends_with("/" + std::string(torch::pickle_record));
}

// Selects the relevant mappings, and caches facts about their files.
class Search {
 public:
  explicit Search(Targets targets)
      : targets_(std::move(targets.files)), links_(std::move(targets.links)) {}

  bool wants(const MappedArea& area) {
    if (area.inode == 0) return false;
    if (targets_.empty()) return is_checkpoint(area);
    return std::any_of(targets_.begin(), targets_.end(),
                       [&area](const Target& target) {
                         return matches(area, target) || shows(area, target);
                       }) ||
           is_of_removed_version(area);
  }

  // Calls what an overlay shows of a file the file itself.
  void resolve(std::vector<mmap::ProcessArea>& parts) const {
    for (mmap::ProcessArea& part : parts) {
      MappedArea& area = part.area;
      const auto target = std::find_if(targets_.begin(), targets_.end(),
                                       [&area](const Target& each) { return shows(area, each); });
      if (target == targets_.end()) continue;
      area.device = target->area->device;
      area.inode = target->area->inode;
      area.path = target->path;
    }
  }

  MappedVersion version_of(const MappedArea& area) {
    const auto target = std::find_if(targets_.begin(), targets_.end(), [&](const Target& each) {
      return each.area && is_same_file(area, *each.area);
    });
    if (target != targets_.end() && target->is_of_earlier_version) return MappedVersion::replaced;
    const bool is_current =
        !is_deleted(area.path) || area.path.starts_with(memory_prefix) || target != targets_.end();
    if (is_current) return MappedVersion::current;
    if (may_not_answer(area.device)) return MappedVersion::deleted;
    return exists(without_mark(area.path)) ? MappedVersion::replaced : MappedVersion::deleted;
  }

  // Returns nullopt if the file is inaccessible.
  std::optional<std::uint64_t> size_of(const MappedArea& area) {
    for (const Target& target : targets_)
      if (target.area && is_same_file(area, *target.area)) return target.size;
    if (may_not_answer(area.device)) return std::nullopt;
    const Result<Generation> now = generation_at(area.path);
    if (!now || now->device != area.device || now->inode != area.inode) return std::nullopt;
    return now->size;
  }

 private:
  // Another file of this name that is not deleted is one that a process sees there, as in a
  // container; one that is deleted was there if it is on the same file system.
  static bool matches(const MappedArea& area, const Target& target) {
    if (target.area && is_same_file(area, *target.area)) return true;
    return is_deleted(area.path) && without_mark(area.path) == target.path &&
           (!target.area || target.area->device == area.device);
  }

  // Of a version whose folder was removed only its name is known.
  bool is_of_removed_version(const MappedArea& area) const {
    return is_deleted(area.path) &&
           std::any_of(links_.begin(), links_.end(), [&area](const os::VersionLink& link) {
             return link.is_in_version(fs::path(without_mark(area.path)).parent_path());
           });
  }

  // Layers on one disk show their files with the numbers that they have there.
  static bool shows(const MappedArea& area, const Target& target) {
    return std::any_of(target.shown.begin(), target.shown.end(), [&](const Shown& shown) {
      return area.inode == target.area->inode && area.path.ends_with(shown.path) &&
             os::number_of_device(area.device) == shown.device;
    });
  }

  bool is_checkpoint(const MappedArea& area) {
    if (area.executable || area.path.empty()) return false;
    if (area.path.starts_with(memory_prefix)) return area.path.starts_with(staged_prefix);
    const auto [known, is_new] = known_.try_emplace(area.path, false);
    if (is_new) known->second = looks_like_checkpoint(area);
    return known->second;
  }

  // A file that lost its name is judged by the one that has it now, if there is one.
  bool looks_like_checkpoint(const MappedArea& area) {
    const std::string_view path = without_mark(area.path);
    if (may_not_answer(area.device)) return has_checkpoint_name(path);
    const Result<os::File> file = os::File::open_foreign(fs::path(path));
    if (!file) return has_checkpoint_name(path);
    file->advise_metadata();  // at most one page, since other processes may measure their own reads
    return begins_as_checkpoint(*file, path);
  }

  // A server in user space or on the network may be stopped, and an open of FUSE drops what is
  // cached of the file for everybody, so there nothing is opened that was not asked for.
  bool may_not_answer(std::uint64_t device) {
    const auto [known, is_new] = remote_.try_emplace(device, false);
    if (is_new) known->second = is_on_a_server(os::number_of_device(device));
    return known->second;
  }

  std::vector<Target> targets_;
  std::vector<os::VersionLink> links_;
  std::map<std::uint64_t, bool> remote_;  // by device
  std::map<std::string, bool> known_;     // by path: true for a checkpoint
};

MappedCheckpoint& entry_of(std::vector<MappedCheckpoint>& entries, const MappedArea& area) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&area](const MappedCheckpoint& entry) {
        return entry.device == area.device && entry.inode == area.inode;
      });
  return found != entries.end() ? *found : entries.emplace_back();
}

void add(MappedCheckpoint& entry, const mmap::ProcessArea& part) {
  const auto& [area, memory] = part;
  const std::uint64_t length = area.end - area.begin;
  entry.file_bytes = std::max(entry.file_bytes, area.file_offset + length);
  entry.has_shared = entry.has_shared || area.shared;
  entry.has_private = entry.has_private || !area.shared;
  entry.writable = entry.writable || area.writable;
  entry.mapped_bytes += length;
  entry.resident_bytes += memory.resident;
  entry.pss_bytes += memory.proportional;
  entry.anonymous_bytes += memory.anonymous;
  entry.huge_mapped_bytes += memory.huge + memory.anonymous_huge;
  entry.locked_bytes += memory.locked;
}

// Sums up the mappings of a process by file.
std::vector<MappedCheckpoint> sum_up(const std::vector<mmap::ProcessArea>& parts, Search& search) {
  std::vector<MappedCheckpoint> entries;
  for (const mmap::ProcessArea& part : parts) {
    MappedCheckpoint& entry = entry_of(entries, part.area);
    if (entry.inode == 0) {
      entry.device = part.area.device;
      entry.inode = part.area.inode;
      entry.file = sets::snapshot_path(without_mark(part.area.path)).native();
      entry.version = search.version_of(part.area);
    }
    add(entry, part);
  }
  for (MappedCheckpoint& entry : entries) {
    MappedArea whole;
    whole.device = entry.device;
    whole.inode = entry.inode;
    whole.path = entry.file;
    entry.file_bytes = search.size_of(whole).value_or(entry.file_bytes);
  }
  return entries;
}

}  // namespace

Result<ProcessesReport> processes(const std::vector<fs::path>& files) {
  Targets targets;
  for (const fs::path& path : files) {
    TRY_ASSIGN(Targets found, targets_in_time(path));
    std::move(found.files.begin(), found.files.end(), std::back_inserter(targets.files));
    std::move(found.links.begin(), found.links.end(), std::back_inserter(targets.links));
  }
  Search search(std::move(targets));
  const std::vector<std::int64_t> numbers = mmap::process_numbers();
  if (numbers.empty()) return failure(ErrorCode::io, "cannot list processes: /proc has none");
  ProcessesReport report;
  std::set<std::uint32_t> users;
  const auto wanted = [&search](const MappedArea& area) { return search.wants(area); };
  for (const std::int64_t process : numbers) {
    auto parts = mmap::areas_of_process(process, wanted);
    if (!parts) {
      ++report.unreadable_processes;
      if (const auto user = mmap::user_of_process(process)) users.insert(*user);
    }
    if (!parts || parts->empty()) continue;
    search.resolve(*parts);
    const std::string command = mmap::command_of_process(process);
    for (MappedCheckpoint& entry : sum_up(*parts, search)) {
      entry.process = process;
      entry.command = command;
      report.mapped.push_back(std::move(entry));
    }
  }
  report.unreadable_users.assign(users.begin(), users.end());
  std::sort(report.mapped.begin(), report.mapped.end(),
            [](const MappedCheckpoint& a, const MappedCheckpoint& b) {
              return std::tie(a.file, a.version, a.device, a.inode, a.process) <
                     std::tie(b.file, b.version, b.device, b.inode, b.process);
            });
  return report;
}

std::string_view to_string(MappedVersion version) noexcept {
  constexpr std::array<std::string_view, 3> words = {"current", "replaced", "deleted"};
  return words.at(static_cast<std::size_t>(version));
}

Result<std::vector<FileMapping>> file_mappings(std::span<const std::uintptr_t> addresses,
                                               bool counted) {
  std::vector<std::uintptr_t> sorted(addresses.begin(), addresses.end());
  std::sort(sorted.begin(), sorted.end());
  const auto areas = mmap::areas_of_this_process(
      [&](const MappedArea& area) {
        const auto first = std::lower_bound(sorted.begin(), sorted.end(), area.begin);
        return area.inode != 0 && first != sorted.end() && *first < area.end;
      },
      counted);
  if (!areas) return failure(ErrorCode::io, "cannot read what this process has mapped");
  std::vector<FileMapping> mappings;
  for (const auto& [area, memory] : *areas)
    mappings.push_back({area.begin, area.end, area.writable, memory.anonymous});
  return mappings;
}

}  // namespace weightmap
