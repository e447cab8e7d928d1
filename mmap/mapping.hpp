// Maps whole files, each once: a single file, or several in one range of addresses.
//
// Reading the bytes may fault; if a file is truncated afterwards it raises SIGBUS, unless the
// mapping is guarded (guard.hpp). The destructor unmaps the whole.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "mmap/guard.hpp"
#include "mmap/reservation.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

struct MapOptions {
  Sharing sharing = Sharing::shared;
  bool writable = false;
  bool populate = false;       // fault in all pages before map() returns
  Progress progress = {};      // for `populate` and `locked`, file by file
  bool no_reserve = false;     // MAP_NORESERVE
  bool locked = false;         // keep every page in memory; fails beyond RLIMIT_MEMLOCK
  bool huge_pages = true;      // MADV_HUGEPAGE before the first touch; ignored where unknown
  bool being_filled = false;   // other processes write to it, so only its size must be unchanged
  bool guard = false;          // zeros instead of SIGBUS; the files must outlive the mapping
  int loss_event = -1;         // of the guard
  RefusedWrite on_write = {};  // of the guard
};

class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping&&) noexcept = default;
  Mapping& operator=(Mapping&&) noexcept = default;
  ~Mapping() { guard_ = Guard(); }  // before the guarded bytes are unmapped

  // The file needs to be writable only for Sharing::shared with `writable`. Fails with io if the
  // system refuses, or if the file has changed since it was opened.
  static Result<Mapping> map(const os::File& file, const MapOptions& options);

  // Maps several files into one range of addresses, which ends with the last of them; gaps read as
  // zeros. Bases ascend from 0 and are multiples of large_page, and no two files overlap. Fails
  // likewise, with the base of the faulty file as offset. If the file system of one of them refuses
  // MAP_SHARED, only that one is private.
  static Result<Mapping> map(std::span<const PlacedFile> files, const MapOptions& options);

  // Only takes the range of addresses: reading it raises SIGSEGV. Fails likewise.
  static Result<Mapping> reserve(std::span<const PlacedFile> files);

  // Bytes of another owner in the place of a mapping, which are neither advised nor unmapped.
  static Mapping over(std::span<const std::byte> memory) noexcept;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // Empty unless the mapping is writable.
  std::span<std::byte> writable_bytes() const noexcept {
    return writable_ ? bytes_ : std::span<std::byte>{};
  }

  // The actual sharing, which may be private_ although shared was requested; for several files,
  // private_ if one of them is.
  Sharing sharing() const noexcept { return sharing_; }
  // True if the file system refused MAP_SHARED (as some network and FUSE file systems do);
  // MAP_PRIVATE is the fallback, which is equivalent for read-only mappings.
  bool fell_back() const noexcept { return fell_back_; }
  bool writable() const noexcept { return writable_; }
  bool locked() const noexcept { return locked_; }
  bool huge_pages() const noexcept { return huge_pages_; }  // were requested

  // True if the guard has replaced a file with zeros.
  bool is_lost() const noexcept { return guard_.is_lost(); }
  // Returns the first offset of the file at `base` that could not be read, if the mapping is
  // guarded and the file was lost.
  std::optional<std::uint64_t> lost_at(std::uint64_t base = 0) const noexcept {
    return guard_.lost_at(base);
  }
  // Fails with io, at that offset, if the file was lost.
  Result<void> check_not_lost(std::uint64_t base = 0) const;

 private:
  explicit Mapping(const MapOptions& options) noexcept;
  // Maps a file to the front of the remaining reservation, after checking that it is unchanged.
  Result<void> place(const os::File& file, Reservation& rest, const MapOptions& options);
  // Prepares mapped bytes as the options request.
  Result<void> finish(std::span<const PlacedFile> files, const MapOptions& options);

  Guard guard_;  // first, so that assignment releases it before the guarded bytes
  std::vector<boost::interprocess::mapped_region> regions_;  // one for each file
  std::vector<Reservation> gaps_;                            // between them
  std::span<std::byte> bytes_;
  Sharing sharing_ = Sharing::shared;
  bool fell_back_ = false;
  bool writable_ = false;
  bool locked_ = false;
  bool huge_pages_ = false;
};

}  // namespace weightmap::mmap
