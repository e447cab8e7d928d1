#include "mmap/pages/huge_sample.hpp"

#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <span>
#include <tuple>
#include <vector>

#include "mmap/pages/file_window.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/system/kernel.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::size_t max_ranges = 8;

// Returns the index among `count` for item `i` of `wanted`, spread evenly.
std::uint64_t spread(std::uint64_t i, std::uint64_t wanted, std::uint64_t count) noexcept {
  return wanted < 2 ? 0 : i * (count - 1) / (wanted - 1);
}

// Chooses up to eight fully cached ranges.
std::vector<ByteRange> choose_ranges(const os::File& file, const CachedPages& cached,
                                     std::uint64_t huge) {
  std::vector<std::uint64_t> whole;
  for (std::uint64_t i = 0; i < file.size() / huge; ++i)
    if (cached.cached_bytes(i * huge, huge) == huge) whole.push_back(i * huge);
  std::vector<ByteRange> chosen;
  const std::uint64_t wanted = std::min<std::uint64_t>(max_ranges, whole.size());
  for (std::uint64_t i = 0; i < wanted; ++i)
    chosen.push_back({whole[spread(i, wanted, whole.size())], huge});
  return chosen;
}

// MADV_RANDOM is set since a page may carry a mark that triggers read-ahead at its next read.
bool fault_in(std::span<std::byte> ranges) noexcept {
  return ::madvise(ranges.data(), ranges.size(), MADV_RANDOM) == 0 &&
         ::madvise(ranges.data(), ranges.size(), MADV_POPULATE_READ) == 0;
}

std::tuple<int, int> kernel_version() noexcept {
  utsname name{};
  int major = 0;
  int minor = 0;
  if (::uname(&name) != 0) return {0, 0};
  const char* const end = name.release + std::strlen(name.release);
  const char* const rest = std::from_chars(name.release, end, major).ptr;
  if (rest != end) std::from_chars(rest + 1, end, minor);
  return {major, minor};
}

// Other file systems may support them, too (tmpfs, NFS, btrfs by configuration); that shows only
// when a huge page is seen.
bool keeps_huge_pages(const os::File& file) noexcept {
  struct statfs status {};
  if (::fstatfs(file.descriptor(), &status) != 0) return false;
  const auto type = static_cast<std::uint64_t>(status.f_type);
  return (type == EXT4_SUPER_MAGIC && kernel_version() >= std::tuple(6, 16)) ||
         (type == os::kernel::xfs_magic && kernel_version() >= std::tuple(5, 18));
}

}  // namespace

std::optional<bool> HugeSample::is_fragmented() const noexcept {
  if (bytes == 0) return std::nullopt;
  if (huge_bytes >= bytes - huge_bytes) return false;
  if (could_be_huge || huge_bytes > 0) return true;
  return std::nullopt;
}

std::uint64_t huge_page_bytes() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  std::uint64_t size = 0;
  const bool plausible = file >> size && std::has_single_bit(size);
  return plausible ? size : 0;
}

HugeSample sample_huge_pages(const os::File& file, const CachedPages& cached) {
  const std::uint64_t huge = huge_page_bytes();
  const bool forbidden = ::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0;  // for this process
  if (huge == 0 || forbidden) return {};
  const std::vector<ByteRange> ranges = choose_ranges(file, cached, huge);
  if (ranges.empty()) return {};
  const FileWindow window(file, ranges, huge);
  if (window.bytes().empty() || !fault_in(window.bytes())) return {};
  const Result<MappedMemory> memory = mapped_memory(window.bytes());
  if (!memory) return {};
  return {window.bytes().size(), memory->huge, keeps_huge_pages(file)};
}

}  // namespace weightmap::mmap
