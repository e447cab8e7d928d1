#include "mmap/mapping.hpp"

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <string>

#include "mmap/os_error.hpp"
#include "mmap/populate.hpp"

namespace weightmap::os {
namespace {

namespace ipc = boost::interprocess;
using Region = tl::expected<ipc::mapped_region, int>;  // or an errno

// Boost takes the mode for protection and sharing and adds our flags to those of mmap.
ipc::mode_t mode_of(Sharing sharing, bool writable) noexcept {
  if (sharing == Sharing::shared) return writable ? ipc::read_write : ipc::read_only;
  return writable ? ipc::copy_on_write : ipc::read_private;
}

constexpr std::size_t large_page = std::size_t{2} << 20;

bool lies_for_large_pages(const ipc::mapped_region& region) noexcept {
  return region.get_size() < large_page ||
         reinterpret_cast<std::uintptr_t>(region.get_address()) % large_page == 0;
}

// Where `size` bytes are free at this moment; nullptr if nowhere. Only a wish: a mapping made there
// fails if another thread was faster.
const void* free_place_for_large_pages(std::size_t size) noexcept {
  void* const place = ::mmap(nullptr, size + large_page, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  ::munmap(place, size + large_page);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(place) % large_page;
  return static_cast<std::byte*>(place) + (beyond == 0 ? 0 : large_page - beyond);
}

// At an address where large pages can be mapped as such. The system sees to that for most files on
// disks (Linux 6.7), but not for shared memory.
ipc::mapped_region map_whole(const File& file, ipc::mode_t mode, int native_flags) {
  const auto size = static_cast<std::size_t>(file.size());
  ipc::mapped_region region(file, mode, 0, size, nullptr, native_flags);
  if (lies_for_large_pages(region)) return region;
  const void* const place = free_place_for_large_pages(size);
  if (place == nullptr) return region;
  try {
    return ipc::mapped_region(file, mode, 0, size, place, native_flags);
  } catch (const ipc::interprocess_exception&) {
    return region;  // as good, only slower to map
  }
}

Region try_map(const MapFunction& map, const File& file, ipc::mode_t mode, int native_flags) {
  try {
    return map(file, mode, native_flags);
  } catch (const ipc::interprocess_exception& refusal) {
    return tl::unexpected<int>(refusal.get_native_error());
  }
}

// What file systems that know no shared mappings answer.
bool refuses_sharing(int error_number) noexcept {
  return error_number == ENODEV || error_number == EINVAL || error_number == EOPNOTSUPP;
}

tl::unexpected<Error> map_failure(std::uint64_t bytes, int error_number) {
  Error error = os_error("map " + std::to_string(bytes) + " bytes", error_number);
  if (error_number == ENOMEM)
    error.message += " (address space, its limit RLIMIT_AS, or the number of mappings is used up)";
  return tl::unexpected<Error>(std::move(error));
}

Result<void> lock(std::span<const std::byte> bytes, const MapOptions& options) {
  if (!options.locked || ::mlock(bytes.data(), bytes.size()) == 0) return {};
  return tl::unexpected<Error>(os_error(
      "lock " + std::to_string(bytes.size()) + " bytes in memory (RLIMIT_MEMLOCK)", errno));
}

// Populating comes after the advice, since pages that are there already stay small; and not by
// MAP_POPULATE, which would copy every page of a private writable mapping.
Result<void> prepare_pages(std::span<const std::byte> bytes, const MapOptions& options) {
  void* const address = const_cast<std::byte*>(bytes.data());
  const std::size_t size = bytes.size();
  if (options.huge_pages) ::madvise(address, size, MADV_HUGEPAGE);
  if (options.populate && ::madvise(address, size, MADV_POPULATE_READ) != 0)
    ::madvise(address, size, MADV_WILLNEED);
  return lock(bytes, options);
}

}  // namespace

Result<Mapping> Mapping::map(const File& file, const MapOptions& options) {
  return map_with(file, options, map_whole);
}

Result<Mapping> map_with(const File& file, const MapOptions& options, const MapFunction& map) {
  const int flags = options.no_reserve ? MAP_NORESERVE : 0;
  Mapping mapping;
  mapping.writable_ = options.writable;
  mapping.locked_ = options.locked;
  mapping.huge_pages_ = options.huge_pages;
  mapping.sharing_ = options.sharing;
  Region region = try_map(map, file, mode_of(options.sharing, options.writable), flags);
  const bool may_be_private = options.sharing == Sharing::shared && !options.writable;
  if (!region && may_be_private && refuses_sharing(region.error())) {
    region = try_map(map, file, mode_of(Sharing::private_, false), flags);
    mapping.sharing_ = Sharing::private_;
    mapping.fell_back_ = true;
  }
  if (!region) return map_failure(file.size(), region.error());
  mapping.region_ = std::move(*region);
  if (Result<void> ok = file.check_unchanged(); !ok) return tl::unexpected<Error>(ok.error());
  if (options.guard) {
    Result<Guard> guard = Guard::over(mapping.bytes(), mapping.writable_, file);
    if (!guard) return tl::unexpected<Error>(guard.error());
    mapping.guard_ = std::move(*guard);
  }
  if (Result<void> ok = prepare_pages(mapping.bytes(), options); !ok)
    return tl::unexpected<Error>(ok.error());
  return mapping;
}

Result<void> Mapping::check_not_lost() const {
  const std::optional<std::uint64_t> offset = lost_at();
  if (!offset) return {};
  return failure(ErrorCode::io,
                 "the file was lost under its mapping: it was cut short, or could not be read; "
                 "zeros have taken its place",
                 *offset);
}

std::span<std::byte> Mapping::writable_bytes() const noexcept {
  if (!writable_) return {};
  return {static_cast<std::byte*>(region_.get_address()), region_.get_size()};
}

}  // namespace weightmap::os
