#include "tools/doctor/findings.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

void add(std::uint64_t& sum, std::uint64_t bytes) noexcept {
  sum += std::min(bytes, std::numeric_limits<std::uint64_t>::max() - sum);
}

bool is_converted(DType dtype) noexcept {
  using enum DType;
  return dtype == float64 || dtype == float32 || dtype == float16 || dtype == bfloat16;
}

bool is_misaligned(const NamedTensor& tensor) noexcept {
  const DType dtype = tensor.view.dtype();
  if (is_blocked(dtype)) return false;
  const std::size_t alignment = std::min<std::size_t>(element_size(dtype), 8);
  return alignment > 1 && tensor.file_offset % alignment != 0;
}

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
// Less read-ahead means many small requests; over a network each is a round trip.
constexpr std::uint64_t least_read_ahead = mib / 8;
constexpr std::uint64_t least_remote_read_ahead = mib;
// With smaller extents on average, a disk needs many requests.
constexpr std::uint64_t least_piece = mib;

// Returns a new file name in the working directory for suggested commands.
std::string new_file(const Facts& facts, const std::string& ending) {
  std::filesystem::path path = facts.file;
  if (!path.has_filename()) path = path.parent_path();
  return quoted(path.stem().native() + ending);
}

bool is_single(const Facts& facts) { return facts.around.files.size() == 1; }

constexpr const char* keeping_mount = "mount it with kernel_cache, if its files do not change";

// Of a folder with one file that file, since `stage` and `residency --repair` take no folder.
std::string only_file(const Facts& facts) {
  std::error_code unknown;
  const bool is_folder = std::filesystem::is_directory(facts.file, unknown);
  return quoted(is_folder ? facts.around.files.front().path.native() : facts.file);
}

std::string stage_for_command(const Facts& facts) {
  return "weightmap stage " + only_file(facts) + " -- COMMAND {}";
}

// Returns the first remote file, otherwise the first known one.
FileSurroundings telling_file(const Facts& facts) {
  FileSurroundings found;
  for (const FileSurroundings& file : facts.around.files) {
    if (is_remote(file.file_system)) return file;
    if (found.file_system.empty()) found = file;
  }
  return found;
}

Finding file_system(const Facts& facts) {
  Finding finding{"file system"};
  const FileSurroundings file = telling_file(facts);
  const std::string& type = file.file_system;
  if (type.empty()) return {"file system", Finding::unknown, "not known here"};
  finding.found = printable(type);
  if (facts.lives_in_memory)
    finding.found += ", in memory";
  else if (!file.device.empty())
    finding.found += " on " + printable(file.device);
  if (!is_remote(type)) return finding;
  finding.state = Finding::slow;
  finding.found += ": each page fault may wait for a server or a daemon";
  finding.advice = is_single(facts)            ? stage_for_command(facts)
                   : facts.drops_pages_at_open ? keeping_mount
                                               : "weightmap warm " + quoted(facts.file);
  return finding;
}

Finding read_ahead(const Facts& facts) {
  if (facts.lives_in_memory) return {"read-ahead", Finding::good, "not needed, in memory"};
  const FileSurroundings* least = nullptr;
  for (const FileSurroundings& file : facts.around.files)
    if (file.read_ahead_bytes &&
        (least == nullptr || *file.read_ahead_bytes < *least->read_ahead_bytes))
      least = &file;
  if (least == nullptr) return {"read-ahead", Finding::unknown, "not known here"};
  Finding finding{"read-ahead", Finding::good, human_bytes(*least->read_ahead_bytes)};
  const std::uint64_t wanted =
      is_remote(least->file_system) ? least_remote_read_ahead : least_read_ahead;
  if (*least->read_ahead_bytes >= wanted) return finding;
  finding.state = Finding::slow;
  finding.found += ": what is not in memory is read in many small requests";
  finding.advice = "echo " + std::to_string(wanted / 1024) + " | sudo tee " +
                   quoted(least->read_ahead_setting.native());
  return finding;
}

Finding disk_pieces(const Facts& facts) {
  if (facts.lives_in_memory) return {"fragmentation", Finding::good, "not on a disk"};
  std::uint64_t bytes = 0;
  std::uint64_t extents = 0;
  const FileSurroundings* worst = nullptr;
  for (const FileSurroundings& file : facts.around.files) {
    if (!file.extents) return {"fragmentation", Finding::unknown, "not known here"};
    bytes += file.bytes;
    extents += *file.extents;
    if (worst == nullptr || *file.extents > *worst->extents) worst = &file;
  }
  Finding finding{"fragmentation", Finding::good, count(extents, "extent") + " on the disk"};
  if (extents <= facts.around.files.size() || bytes / extents >= least_piece) return finding;
  finding.state = Finding::slow;
  finding.found += ", " + human_bytes(bytes / extents) + " each";
  const std::string path = worst->path.native();
  finding.advice = "cp --reflink=never " + quoted(path) + " " + quoted(path + ".new") + " && mv " +
                   quoted(path + ".new") + " " + quoted(path);
  return finding;
}

Finding page_cache(const Facts& facts) {
  if (facts.lives_in_memory) return {"page cache", Finding::good, "all of it is in memory"};
  if (facts.drops_pages_at_open)
    return {"page cache", Finding::slow,
            "the file system drops it whenever anybody opens the file, so warming does not help",
            is_single(facts) ? stage_for_command(facts) : keeping_mount};
  if (!facts.residency) return {"page cache", Finding::unknown, printable(facts.residency_problem)};
  const Residency& seen = *facts.residency;
  Finding finding{"page cache", Finding::good,
                  human_bytes(seen.cached_bytes) + " of " + human_bytes(seen.file_bytes)};
  if (seen.cached_bytes >= seen.file_bytes) return finding;
  finding.state = Finding::slow;
  finding.found += ": the rest is read from the disk when it is touched";
  finding.advice = "weightmap warm " + quoted(facts.file);
  return finding;
}

Finding pages(const Facts& facts) {
  const Surroundings& around = facts.around;
  Finding finding{"pages", Finding::good, human_bytes(around.page_bytes)};
  if (around.huge_page_bytes == 0 || around.huge_page_setting.empty()) {
    finding.found += ", and no huge ones in this kernel";
    return finding;
  }
  finding.found += ", huge ones of " + human_bytes(around.huge_page_bytes) + ": " +
                   printable(around.huge_page_setting);
  if (around.huge_page_setting == "never") {
    finding.state = Finding::slow;
    finding.advice = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
    return finding;
  }
  if (!facts.residency || facts.residency->sampled_bytes == 0) return finding;
  finding.found += "; " + human_bytes(facts.residency->sampled_huge_bytes) + " of " +
                   human_bytes(facts.residency->sampled_bytes) + " sampled in huge ones";
  if (!facts.residency->is_fragmented.value_or(false)) return finding;
  finding.state = Finding::slow;
  finding.found += ": each small one costs a page fault";
  const std::string file = quoted(facts.file);
  finding.advice = is_single(facts)
                       ? "weightmap residency --repair " + only_file(facts)
                       : "weightmap residency --evict " + file + " && weightmap warm " + file;
  return finding;
}

std::uint64_t file_bytes(const Facts& facts) {
  std::uint64_t bytes = 0;
  for (const FileSurroundings& file : facts.around.files) bytes += file.bytes;
  return bytes;
}

// Cached pages of the file can be dropped, so they count as free; a file in memory needs no more.
Finding memory(const Facts& facts) {
  const Surroundings& around = facts.around;
  if (!around.available_bytes) return {"memory", Finding::unknown, "not known here"};
  const std::uint64_t needed = (facts.lives_in_memory ? 0 : file_bytes(facts)) +
                               facts.inflated_bytes + facts.tensors.converted_bytes;
  Finding finding{"memory", Finding::good,
                  human_bytes(needed) + " needed, " + human_bytes(*around.available_bytes) +
                      " to be had (" + printable(around.available_reason) + ")"};
  if (needed <= *around.available_bytes) return finding;
  finding.state = Finding::slow;
  finding.found += ": pages are dropped and read again";
  finding.advice = (around.available_reason == "MemAvailable"
                        ? "free "
                        : "raise " + printable(around.available_reason) + " by ") +
                   human_bytes(needed - *around.available_bytes) +
                   (around.available_reason == "MemAvailable" ? " of memory" : "");
  return finding;
}

// Returns "float32 1.0 GiB, int64 8 B", the largest first.
std::string types_text(const std::map<DType, std::uint64_t>& bytes) {
  std::vector<std::pair<DType, std::uint64_t>> types(bytes.begin(), bytes.end());
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, types.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::string(weightmap::to_string(types[i].first)) + " " +
            human_bytes(types[i].second);
  if (types.size() > most) text += " and " + count(types.size() - most, "other");
  return text.empty() ? "no tensors" : text;
}

Finding dtype(const Facts& facts) {
  Finding finding{"dtype", Finding::good, types_text(facts.tensors.bytes)};
  if (!facts.wanted) {
    finding.found += "; --dtype says what another one would cost";
    return finding;
  }
  const std::string wanted(weightmap::to_string(*facts.wanted));
  if (facts.tensors.converted_bytes == 0) {
    finding.found += "; nothing to convert to " + wanted;
    return finding;
  }
  finding.state = Finding::slow;
  finding.found += "; as " + wanted + " " + human_bytes(facts.tensors.converted_bytes) +
                   " of its own for each worker";
  finding.advice = "save it in " + wanted + " once, with the library that wrote it";
  return finding;
}

Finding alignment(const Facts& facts) {
  const TensorFacts& tensors = facts.tensors;
  if (tensors.misaligned == 0) return {"alignment", Finding::good, "all tensors are aligned"};
  return {
      "alignment", Finding::slow,
      count(tensors.misaligned, "tensor") + ", " + human_bytes(tensors.misaligned_bytes) +
          ", at odd addresses: torch copies them",
      "weightmap convert " + quoted(facts.file) + " " + new_file(facts, ".aligned.safetensors")};
}

Finding copies(const Facts& facts) {
  const TensorFacts& tensors = facts.tensors;
  if (facts.inflated_storages > 0)
    return {"copies", Finding::slow,
            count(facts.inflated_storages, "storage") + " compressed, inflated into " +
                human_bytes(facts.inflated_bytes) + " for each worker",
            "weightmap convert " + quoted(facts.file) + " " + new_file(facts, ".stored.pt")};
  if (tensors.foreign > 0)
    return {
        "copies", Finding::slow,
        count(tensors.foreign, "tensor") + ", " + human_bytes(tensors.foreign_bytes) +
            ", in the other byte order: swapped into copies",
        "weightmap convert " + quoted(facts.file) + " " + new_file(facts, ".native.safetensors")};
  return {"copies", Finding::good, "none: nothing is compressed or in the other byte order"};
}

Finding kernel(const Facts& facts) {
  const Surroundings& around = facts.around;
  Finding finding{"kernel", Finding::good,
                  around.kernel.empty() ? "release not known" : printable(around.kernel)};
  std::string lacks;
  if (!around.has_populate_read) lacks = "MADV_POPULATE_READ (warm-ups map nothing)";
  if (!around.has_cachestat)
    lacks += std::string(lacks.empty() ? "" : ", ") + "cachestat (what is cached is slow to count)";
  if (lacks.empty()) {
    finding.found += ", with MADV_POPULATE_READ and cachestat";
    return finding;
  }
  finding.state = Finding::slow;
  finding.found += ", without " + lacks;
  finding.advice = "a kernel that has them (5.14, 6.5), or a system call filter that allows them";
  return finding;
}

}  // namespace

TensorFacts tensor_facts(const Checkpoint& checkpoint, std::optional<DType> wanted) {
  TensorFacts facts;
  std::set<std::tuple<std::size_t, std::uint64_t, std::uint64_t, DType>> seen;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const DType dtype = tensor.view.dtype();
    const std::uint64_t bytes = tensor.view.stored_bytes().size();
    if (!seen.emplace(tensor.source, tensor.file_offset, bytes, dtype).second) continue;
    add(facts.bytes[dtype], bytes);
    if (wanted && *wanted != dtype && is_converted(dtype))
      add(facts.converted_bytes, bytes / element_size(dtype) * element_size(*wanted));
    if (tensor.view.is_foreign_byte_order()) {
      ++facts.foreign;
      add(facts.foreign_bytes, bytes);
    } else if (!tensor.is_copied && is_misaligned(tensor)) {
      ++facts.misaligned;
      add(facts.misaligned_bytes, bytes);
    }
  }
  return facts;
}

std::string quoted(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:@,").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string shown = printable("." + text + ".");  // without spaces at its ends
  shown = shown.substr(1, shown.size() - 2);
  const bool is_shown = shown == text;
  std::string quoted = is_shown ? "'" : "$'";
  for (const char c : shown)
    quoted += c == '\'' ? std::string(is_shown ? "'\\''" : "\\'") : std::string(1, c);
  return quoted + "'";
}

std::string_view to_string(Finding::State state) noexcept {
  constexpr std::array<std::string_view, 3> names = {"good", "slow", "unknown"};
  return names[state];
}

std::vector<Finding> findings(const Facts& facts) {
  return {file_system(facts), read_ahead(facts), disk_pieces(facts), page_cache(facts),
          pages(facts),       memory(facts),     dtype(facts),       alignment(facts),
          copies(facts),      kernel(facts)};
}

}  // namespace weightmap::cli::doctor
