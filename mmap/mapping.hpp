// A whole file in memory, mapped once.
//
// Reading the bytes may fault; if the file is cut short afterwards it raises SIGBUS, unless the
// mapping is guarded (guard.hpp). Unmapped by the destructor.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "mmap/file.hpp"
#include "mmap/guard.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

struct MapOptions {
  Sharing sharing = Sharing::shared;
  bool writable = false;
  bool populate = false;    // fault in every page before map() returns
  bool no_reserve = false;  // MAP_NORESERVE
  bool locked = false;      // keep every page in memory; fails beyond RLIMIT_MEMLOCK
  bool huge_pages = true;   // MADV_HUGEPAGE before the first touch; ignored where unknown
  bool guard = false;       // zeros instead of SIGBUS; the file must outlive the mapping
};

// Makes one mapping of the whole file with these native flags, or throws interprocess_exception.
using MapFunction = std::function<boost::interprocess::mapped_region(
    const File&, boost::interprocess::mode_t, int native_flags)>;

class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping&&) noexcept = default;
  Mapping& operator=(Mapping&&) noexcept = default;
  ~Mapping() { guard_ = Guard(); }  // before what it guards is unmapped

  // The file needs to be writable only for Sharing::shared with `writable`. Fails with io if the
  // system refuses, or if the file is not the one any more that was opened.
  static Result<Mapping> map(const File& file, const MapOptions& options);

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(region_.get_address()), region_.get_size()};
  }
  // Empty unless the mapping is writable.
  std::span<std::byte> writable_bytes() const noexcept;

  // What the mapping is, which may be private_ where shared was asked for.
  Sharing sharing() const noexcept { return sharing_; }
  // The file system refused MAP_SHARED (some network and FUSE file systems do), and since nothing
  // is written, MAP_PRIVATE serves as well.
  bool fell_back() const noexcept { return fell_back_; }
  bool writable() const noexcept { return writable_; }
  bool locked() const noexcept { return locked_; }
  bool huge_pages() const noexcept { return huge_pages_; }  // were asked for

  // The first offset that could not be read, if the mapping is guarded and was lost.
  std::optional<std::uint64_t> lost_at() const noexcept { return guard_.lost_at(); }
  // Fails with io, at that offset, if it was.
  Result<void> check_not_lost() const;

 private:
  friend Result<Mapping> map_with(const File&, const MapOptions&, const MapFunction&);

  Guard guard_;  // first, so that assignment lets go of it before what it guards
  boost::interprocess::mapped_region region_;
  Sharing sharing_ = Sharing::shared;
  bool fell_back_ = false;
  bool writable_ = false;
  bool locked_ = false;
  bool huge_pages_ = false;
};

// Mapping::map() over another way to call mmap; for tests.
Result<Mapping> map_with(const File& file, const MapOptions& options, const MapFunction& map);

}  // namespace weightmap::os
