#include "mmap/mapping.hpp"

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <string>

#include "mmap/kernel.hpp"
#include "mmap/memory/memory_limit.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::os {
namespace {

namespace ipc = boost::interprocess;

// Boost takes the mode for protection and sharing and adds our flags to those of mmap.
ipc::mode_t mode_of(Sharing sharing, bool writable) noexcept {
  if (sharing == Sharing::shared) return writable ? ipc::read_write : ipc::read_only;
  return writable ? ipc::copy_on_write : ipc::read_private;
}

bool lies_for_large_pages(const ipc::mapped_region& region) noexcept {
  return region.get_size() < large_page ||
         reinterpret_cast<std::uintptr_t>(region.get_address()) % large_page == 0;
}

// Where `size` bytes are free at this moment; nullptr if nowhere. Only a wish: a mapping made there
// fails if another thread was faster.
const void* free_place_for_large_pages(std::size_t size) noexcept {
  return Reservation(size, large_page, Reservation::Access::none).bytes().data();
}

// At an address where large pages can be mapped as such. The system sees to that for most files on
// disks (Linux 6.7), but not for shared memory.
ipc::mapped_region map_whole(const File& file, ipc::mode_t mode, int native_flags) {
  const auto size = static_cast<std::size_t>(file.size());
  ipc::mapped_region region(Mappable(file), mode, 0, size, nullptr, native_flags);
  if (lies_for_large_pages(region)) return region;
  const void* const place = free_place_for_large_pages(size);
  if (place == nullptr) return region;
  try {
    return ipc::mapped_region(Mappable(file), mode, 0, size, place, native_flags);
  } catch (const ipc::interprocess_exception&) {
    return region;  // as good, only slower to map
  }
}

// Answers an errno, or 0.
int try_map(const MapFunction& map, const File& file, ipc::mode_t mode, int native_flags,
            ipc::mapped_region& region) {
  try {
    region = map(file, mode, native_flags);
    return 0;
  } catch (const ipc::interprocess_exception& refusal) {
    return refusal.get_native_error();
  }
}

// What file systems that know no shared mappings answer.
bool refuses_sharing(int error_number) noexcept {
  return error_number == ENODEV || error_number == EINVAL || error_number == EOPNOTSUPP;
}

// Puts a file into a reserved range. Answers an errno, or 0.
int put(const PlacedFile& placed, std::span<std::byte> range, Sharing sharing,
        const MapOptions& options) noexcept {
  const int protection = options.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = (sharing == Sharing::shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED |
                    (options.no_reserve ? MAP_NORESERVE : 0);
  const void* const at = ::mmap(range.data() + placed.base, placed.file->size(), protection, flags,
                                placed.file->descriptor(), 0);
  return at == MAP_FAILED ? errno : 0;
}

Error map_failure(std::uint64_t bytes, int error_number, std::uint64_t offset = Error::no_offset) {
  Error error = os_error("map " + std::to_string(bytes) + " bytes", error_number, offset);
  if (error_number == ENOMEM)
    error.message += " (address space, its limit RLIMIT_AS, or the number of mappings is used up)";
  return error;
}

// Locked pages cannot be given back, so where memory ends the system kills.
Result<void> check_room(std::uint64_t piece, std::uint64_t locked, std::uint64_t all) {
  const MemoryLimit limit = memory_limit();
  if (piece <= limit.usable()) return {};
  return failure(ErrorCode::io, "cannot lock " + std::to_string(all) + " bytes in memory: after " +
                                    std::to_string(locked) + " there are " +
                                    std::to_string(limit.usable()) + " left (15/16 of " +
                                    limit.reason + ")");
}

// Not by MAP_POPULATE, which would copy every page of a private writable mapping. In pieces, so
// that whoever waits for a large file can be told, and stop.
Result<void> bring_in(std::span<const std::byte> bytes, const MapOptions& options) {
  constexpr std::size_t piece = std::size_t{16} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::span<const std::byte> part = bytes.subspan(at, std::min(piece, bytes.size() - at));
    void* const address = const_cast<std::byte*>(part.data());
    if (options.locked) TRY(check_room(part.size(), at, bytes.size()));
    if (options.populate && ::madvise(address, part.size(), MADV_POPULATE_READ) != 0)
      ::madvise(address, part.size(), MADV_WILLNEED);
    if (options.locked && ::mlock(address, part.size()) != 0)
      return os_failure("lock " + std::to_string(bytes.size()) +
                        " bytes in memory (RLIMIT_MEMLOCK)");
    TRY(go_on(options.progress, at + part.size(), bytes.size()));
  }
  return {};
}

// Advice is for what is still to be read, which of a file that one read takes is nothing.
// Populating comes after it, since pages that are there already stay small.
Result<void> prepare_pages(std::span<const std::byte> bytes, const MapOptions& options) {
  if (options.huge_pages && bytes.size() > bytes::first_read)
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_HUGEPAGE);
  if (!options.populate && !options.locked) return {};
  return bring_in(bytes, options);
}

}  // namespace

Mapping::Mapping(const MapOptions& options) noexcept
    : sharing_(options.sharing),
      writable_(options.writable),
      locked_(options.locked),
      huge_pages_(options.huge_pages) {}

template <class Map>
int Mapping::map_or_fall_back(const MapOptions& options, const Map& map) {
  const int refused = map(options.sharing);
  const bool may_be_private = options.sharing == Sharing::shared && !options.writable;
  if (!may_be_private || !refuses_sharing(refused)) return refused;
  sharing_ = Sharing::private_;
  fell_back_ = true;
  return map(Sharing::private_);
}

Result<void> Mapping::finish(std::span<const PlacedFile> files, const MapOptions& options) {
  for (const PlacedFile& placed : files) {
    Result<void> same =
        options.being_filled ? placed.file->check_not_resized() : placed.file->check_unchanged();
    if (!same && files.size() > 1) same.error().file_offset = placed.base;
    TRY(same);
  }
  if (options.guard) {
    TRY_ASSIGN(guard_, Guard::over(bytes_, writable_, files, options.loss_event, options.on_write));
  }
  for (const PlacedFile& placed : files)
    TRY(prepare_pages(bytes_.subspan(placed.base, placed.file->size()), options));
  return {};
}

Result<Mapping> Mapping::map(const File& file, const MapOptions& options) {
  return map_with(file, options, map_whole);
}

Result<Mapping> map_with(const File& file, const MapOptions& options, const MapFunction& map) {
  const int flags = options.no_reserve ? MAP_NORESERVE : 0;
  Mapping mapping(options);
  const int refused = mapping.map_or_fall_back(options, [&](Sharing sharing) {
    return try_map(map, file, mode_of(sharing, options.writable), flags, mapping.region_);
  });
  if (refused != 0) return tl::unexpected<Error>(map_failure(file.size(), refused));
  mapping.bytes_ = {static_cast<std::byte*>(mapping.region_.get_address()),
                    mapping.region_.get_size()};
  const PlacedFile placed{&file};
  TRY(mapping.finish({&placed, 1}, options));
  return mapping;
}

Result<Mapping> Mapping::map(std::span<const PlacedFile> files, const MapOptions& options) {
  if (files.size() == 1) return map(*files.front().file, options);
  const std::uint64_t size = files.back().base + files.back().file->size();
  Mapping mapping(options);
  mapping.reservation_ = Reservation(size, large_page, Reservation::Access::read);
  mapping.bytes_ = mapping.reservation_.bytes();
  if (mapping.bytes_.empty()) return tl::unexpected<Error>(map_failure(size, errno));
  for (const PlacedFile& placed : files) {
    const int refused = mapping.map_or_fall_back(
        options, [&](Sharing sharing) { return put(placed, mapping.bytes_, sharing, options); });
    if (refused != 0)
      return tl::unexpected<Error>(map_failure(placed.file->size(), refused, placed.base));
  }
  TRY(mapping.finish(files, options));
  return mapping;
}

Result<void> Mapping::check_not_lost(std::uint64_t base) const {
  const std::optional<std::uint64_t> offset = lost_at(base);
  if (!offset) return {};
  return failure(ErrorCode::io,
                 "the file was lost under its mapping: it was truncated, or could not be read; "
                 "zeros have taken its place",
                 *offset);
}

}  // namespace weightmap::os
