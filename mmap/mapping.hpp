// Whole files in memory, each mapped once: one of them, or several in one range of addresses.
//
// Reading the bytes may fault; if a file is truncated afterwards it raises SIGBUS, unless the
// mapping is guarded (guard.hpp). Unmapped by the destructor, as a whole.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "mmap/guard.hpp"
#include "mmap/reservation.hpp"
#include "runtime/os/file/file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

struct MapOptions {
  Sharing sharing = Sharing::shared;
  bool writable = false;
  bool populate = false;       // fault in every page before map() returns
  Progress progress = {};      // of what `populate` and `locked` bring in, file by file
  bool no_reserve = false;     // MAP_NORESERVE
  bool locked = false;         // keep every page in memory; fails beyond RLIMIT_MEMLOCK
  bool huge_pages = true;      // MADV_HUGEPAGE before the first touch; ignored where unknown
  bool being_filled = false;   // others write to it: only its size must be what it was
  bool guard = false;          // zeros instead of SIGBUS; the files must outlive the mapping
  int loss_event = -1;         // of the guard
  RefusedWrite on_write = {};  // of the guard
};

class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping&&) noexcept = default;
  Mapping& operator=(Mapping&&) noexcept = default;
  ~Mapping() { guard_ = Guard(); }  // before what it guards is unmapped

  // The file needs to be writable only for Sharing::shared with `writable`. Fails with io if the
  // system refuses, or if the file is not the one any more that was opened.
  static Result<Mapping> map(const os::File& file, const MapOptions& options);

  // Several files in one range of addresses, which ends with the last of them; what lies between
  // them reads as zeros. Bases ascend from 0 and are multiples of large_page, and no two files
  // overlap. Fails likewise, with the base of the file that is to blame as offset. Where the file
  // system of one of them refuses MAP_SHARED, that one alone is private.
  static Result<Mapping> map(std::span<const PlacedFile> files, const MapOptions& options);

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // Empty unless the mapping is writable.
  std::span<std::byte> writable_bytes() const noexcept {
    return writable_ ? bytes_ : std::span<std::byte>{};
  }

  // What the mapping is, which may be private_ where shared was asked for; of several files,
  // private_ if one of them is.
  Sharing sharing() const noexcept { return sharing_; }
  // The file system refused MAP_SHARED (some network and FUSE file systems do), and since nothing
  // is written, MAP_PRIVATE serves as well.
  bool fell_back() const noexcept { return fell_back_; }
  bool writable() const noexcept { return writable_; }
  bool locked() const noexcept { return locked_; }
  bool huge_pages() const noexcept { return huge_pages_; }  // were asked for

  // Whether the guard has put zeros in the place of a file.
  bool is_lost() const noexcept { return guard_.is_lost(); }
  // The first offset of the file at `base` that could not be read, if the mapping is guarded and
  // that file was lost.
  std::optional<std::uint64_t> lost_at(std::uint64_t base = 0) const noexcept {
    return guard_.lost_at(base);
  }
  // Fails with io, at that offset, if it was.
  Result<void> check_not_lost(std::uint64_t base = 0) const;

 private:
  explicit Mapping(const MapOptions& options) noexcept;
  // Maps a file to the front of what is still reserved, if it is the one that was opened.
  Result<void> place(const os::File& file, Reservation& rest, const MapOptions& options);
  // What is done with bytes that are mapped.
  Result<void> finish(std::span<const PlacedFile> files, const MapOptions& options);

  Guard guard_;  // first, so that assignment lets go of it before what it guards
  std::vector<boost::interprocess::mapped_region> regions_;  // a file each
  std::vector<Reservation> gaps_;                            // between them
  std::span<std::byte> bytes_;
  Sharing sharing_ = Sharing::shared;
  bool fell_back_ = false;
  bool writable_ = false;
  bool locked_ = false;
  bool huge_pages_ = false;
};

}  // namespace weightmap::mmap
