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

ipc::mapped_region map_whole(const File& file, ipc::mode_t mode, int native_flags) {
  return ipc::mapped_region(file, mode, 0, static_cast<std::size_t>(file.size()), nullptr,
                            native_flags);
}

// The only place that meets Boost.Interprocess's exception.
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

tl::unexpected<Error> map_failure(const File& file, int error_number) {
  Error error = os_error("map " + std::to_string(file.size()) + " bytes", error_number);
  if (error_number == ENOMEM)
    error.message += " (address space, its limit RLIMIT_AS, or the number of mappings is used up)";
  return tl::unexpected<Error>(std::move(error));
}

Result<void> check_unchanged(const File& file) {
  const Result<Generation> now = file.current_generation();
  if (!now) return tl::unexpected<Error>(now.error());
  if (now->same_content(file.generation())) return {};
  return failure(ErrorCode::io, "the file changed since it was opened: it had " +
                                    std::to_string(file.size()) + " bytes and has now " +
                                    std::to_string(now->size) +
                                    ", or was written to; replace checkpoints by rename");
}

// Populating comes after the advice, since pages that are there already stay small; and not by
// MAP_POPULATE, which would copy every page of a private writable mapping.
Result<void> prepare_pages(const ipc::mapped_region& region, const MapOptions& options) {
  void* const address = region.get_address();
  const std::size_t size = region.get_size();
  if (options.huge_pages) ::madvise(address, size, MADV_HUGEPAGE);
  if (options.populate && ::madvise(address, size, MADV_POPULATE_READ) != 0)
    ::madvise(address, size, MADV_WILLNEED);
  if (options.locked && ::mlock(address, size) != 0)
    return tl::unexpected<Error>(
        os_error("lock " + std::to_string(size) + " bytes in memory (RLIMIT_MEMLOCK)", errno));
  return {};
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
  if (!region) return map_failure(file, region.error());
  mapping.region_ = std::move(*region);
  if (Result<void> ok = check_unchanged(file); !ok) return tl::unexpected<Error>(ok.error());
  if (Result<void> ok = prepare_pages(mapping.region_, options); !ok)
    return tl::unexpected<Error>(ok.error());
  return mapping;
}

std::span<std::byte> Mapping::writable_bytes() const noexcept {
  if (!writable_) return {};
  return {static_cast<std::byte*>(region_.get_address()), region_.get_size()};
}

}  // namespace weightmap::os
