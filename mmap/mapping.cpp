#include "mmap/mapping.hpp"

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <string>

#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

namespace ipc = boost::interprocess;

// Boost derives protection and sharing from the mode and adds our flags to those of mmap.
ipc::mode_t mode_of(Sharing sharing, bool writable) noexcept {
  if (sharing == Sharing::shared) return writable ? ipc::read_write : ipc::read_only;
  return writable ? ipc::copy_on_write : ipc::read_private;
}

// An open file in the form of boost::interprocess::mapped_region.
struct Mappable {
  boost::interprocess::mapping_handle_t get_mapping_handle() const noexcept {
    return {descriptor, false};
  }
  int descriptor;
};

// Recognises the errors of file systems without shared mappings.
bool refuses_sharing(int error_number) noexcept {
  return error_number == ENODEV || error_number == EINVAL || error_number == EOPNOTSUPP;
}

// Tries one page at any address: a refusal at a fixed one may leave a hole there.
bool can_be_shared(const os::File& file) {
  try {
    ipc::mapped_region(Mappable{file.descriptor()}, ipc::read_only, 0, 1);
    return true;
  } catch (const ipc::interprocess_exception& refusal) {
    return !refuses_sharing(refusal.get_native_error());
  }
}

Error map_failure(std::uint64_t bytes, int error_number) {
  Error error = os::os_error("map " + std::to_string(bytes) + " bytes", error_number);
  if (error_number == ENOMEM)
    error.message += " (address space, its limit RLIMIT_AS, or the number of mappings is used up)";
  return error;
}

// Locked pages cannot be reclaimed, so beyond the limit the system kills processes.
Result<void> check_room(std::uint64_t piece, std::uint64_t locked, std::uint64_t all) {
  const os::MemoryLimit limit = os::memory_limit();
  if (piece <= limit.usable()) return {};
  return failure(ErrorCode::io, "cannot lock " + std::to_string(all) + " bytes in memory: after " +
                                    std::to_string(locked) + " there are " +
                                    std::to_string(limit.usable()) + " left (15/16 of " +
                                    limit.reason + ")");
}

// Does not use MAP_POPULATE, which would copy every page of a private writable mapping. Works in
// pieces, for progress and cancellation.
Result<void> bring_in(std::span<const std::byte> bytes, const MapOptions& options) {
  constexpr std::size_t piece = std::size_t{16} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::span<const std::byte> part = bytes.subspan(at, std::min(piece, bytes.size() - at));
    void* const address = const_cast<std::byte*>(part.data());
    if (options.locked) TRY(check_room(part.size(), at, bytes.size()));
    if (options.populate && ::madvise(address, part.size(), MADV_POPULATE_READ) != 0)
      ::madvise(address, part.size(), MADV_WILLNEED);
    if (options.locked && ::mlock(address, part.size()) != 0)
      return os::os_failure("lock " + std::to_string(bytes.size()) +
                            " bytes in memory (RLIMIT_MEMLOCK)");
    TRY(go_on(options.progress, at + part.size(), bytes.size()));
  }
  return {};
}

// Advice concerns later reads, of which a file that one read covers has none. It precedes
// populating, since cached pages stay small.
Result<void> prepare_pages(std::span<const std::byte> bytes, const MapOptions& options) {
  if (options.huge_pages && bytes.size() > bytes::first_read)
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_HUGEPAGE);
  if (!options.populate && !options.locked) return {};
  return bring_in(bytes, options);
}

std::uint64_t size_of(std::span<const PlacedFile> files) noexcept {
  return files.back().base + files.back().file->size();
}

}  // namespace

Mapping::Mapping(const MapOptions& options) noexcept
    : sharing_(options.sharing),
      writable_(options.writable),
      locked_(options.locked),
      huge_pages_(options.huge_pages) {}

Result<void> Mapping::place(const os::File& file, Reservation& rest, const MapOptions& options) {
  Sharing sharing = options.sharing;
  if (sharing == Sharing::shared && !options.writable && !can_be_shared(file)) {
    sharing = sharing_ = Sharing::private_;
    fell_back_ = true;
  }
  const int flags = MAP_FIXED | (options.no_reserve ? MAP_NORESERVE : 0);
  try {
    regions_.emplace_back(Mappable{file.descriptor()}, mode_of(sharing, options.writable), 0,
                          file.size(), rest.bytes().data(), flags);
  } catch (const ipc::interprocess_exception& refusal) {
    rest.take_again(rest.bytes().first(file.size()), refusal.get_native_error());
    return tl::unexpected<Error>(map_failure(file.size(), refusal.get_native_error()));
  }
  rest.take_front(file.size()).release();
  return options.being_filled ? file.check_not_resized() : file.check_unchanged();
}

Result<void> Mapping::finish(std::span<const PlacedFile> files, const MapOptions& options) {
  if (options.guard) {
    TRY_ASSIGN(guard_, Guard::over(bytes_, writable_, files, options.loss_event, options.on_write));
  }
  for (const PlacedFile& placed : files)
    TRY(prepare_pages(bytes_.subspan(placed.base, placed.file->size()), options));
  return {};
}

Result<Mapping> Mapping::map(const os::File& file, const MapOptions& options) {
  const PlacedFile placed{&file};
  return map({&placed, 1}, options);
}

Result<Mapping> Mapping::map(std::span<const PlacedFile> files, const MapOptions& options) {
  const std::uint64_t size = size_of(files);
  const bool is_one = files.size() == 1;
  Reservation rest(size, size < os::large_page ? os::page_bytes() : os::large_page,
                   is_one ? Reservation::Access::none : Reservation::Access::read);
  if (rest.is_empty()) return tl::unexpected<Error>(map_failure(size, errno));
  Mapping mapping(options);
  mapping.bytes_ = rest.bytes();
  mapping.regions_.reserve(files.size());
  mapping.gaps_.reserve(files.size() - 1);
  rest.take_front(0);  // releases the space before the first file
  for (const PlacedFile& placed : files) {
    const std::byte* const begin = mapping.bytes_.data() + placed.base;
    if (begin != rest.bytes().data())
      mapping.gaps_.push_back(
          rest.take_front(static_cast<std::size_t>(begin - rest.bytes().data())));
    Result<void> done = mapping.place(*placed.file, rest, options);
    if (!done && !is_one) done.error().file_offset = placed.base;
    TRY(done);
  }
  TRY(mapping.finish(files, options));
  return mapping;
}

Mapping Mapping::over(std::span<const std::byte> memory) noexcept {
  Mapping mapping;
  mapping.bytes_ = {const_cast<std::byte*>(memory.data()), memory.size()};
  return mapping;
}

Result<Mapping> Mapping::reserve(std::span<const PlacedFile> files) {
  const std::uint64_t size = size_of(files);
  Reservation all(size, os::page_bytes(), Reservation::Access::none);
  if (all.is_empty()) return tl::unexpected<Error>(map_failure(size, errno));
  Mapping mapping;
  mapping.bytes_ = all.bytes();
  mapping.gaps_.push_back(std::move(all));
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

}  // namespace weightmap::mmap
