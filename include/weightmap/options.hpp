// What open() may be told. docs/options.md is the same as a table.
//
// Every field is optional: what a call leaves unset is taken from the environment variable named
// beside it, and what that leaves unset from the built-in default. So a call overrides the
// environment, field by field. The environment is read at each open (getenv: do not call setenv in
// another thread meanwhile).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// MAP_SHARED or MAP_PRIVATE. With writable == false both are read-only and both share the page
// cache between processes; they differ when writable: `shared` writes reach the file, `private_`
// writes stay in this process (copy on write, page by page).
enum class Sharing : std::uint8_t { shared, private_ };

// What is proven before a view is handed out. Each level includes the one before.
enum class Verify : std::uint8_t {
  chain,    // every calculated offset against the central directory and its neighbours; no reads
  headers,  // ... and against the record's local header, one small read a record
  crc,      // ... and every stored byte against its CRC-32 (reads the whole file)
};

// Byte order assumed for a file that has no `byteorder` record (torch before 2.1).
enum class ByteOrder : std::uint8_t { little, big, native };

// What becomes of the mapping when the file is cut short, or cannot be read any more, under it. See
// checkpoint.hpp for what each of them can and cannot do.
enum class Protection : std::uint8_t {
  map,       // the file itself: reading what is gone ends the process with SIGBUS
  guard,     // the file itself: zeros take its place, and Checkpoint::state() says `lost`
  snapshot,  // a reflink of the file, which nobody else can change; fails where there are none
};

// Added to the refusal of protection=copy, which is not a word here.
inline constexpr std::string_view copy_protection_hint =
    " (a copy in memory is made by `weightmap stage`, or stage() in a program)";

// Bounds on what one file may cost. Reaching one gives ErrorCode::limit_exceeded and names it.
struct Limits {
  std::uint64_t pickle_bytes = std::uint64_t{1} << 30;     // size of data.pkl; must be below 4 GiB
  std::uint64_t directory_bytes = std::uint64_t{1} << 30;  // size of the central directory
  std::uint64_t record_bytes = std::uint64_t{64} << 20;    // a deflated record, inflated
  // What the pickle may grow to: the value tree to this plus 5 x data.pkl, and the tables of
  // tensors to this plus 2 x data.pkl. So an open stays within 64 MiB + 8 x data.pkl, beside the
  // directory.
  std::uint64_t base_memory = std::uint64_t{24} << 20;
  std::uint32_t depth = 1000;        // nesting of containers; at most 65535
  std::uint32_t tensors = 1u << 24;  // entries of the catalog
  std::uint32_t rank = 64;           // dimensions of one tensor
};

struct OpenOptions {
  std::optional<Sharing> sharing;               // WEIGHTMAP_SHARING=shared|private; shared
  std::optional<bool> writable;                 // WEIGHTMAP_WRITABLE=0|1; 0
  std::optional<Verify> verify;                 // WEIGHTMAP_VERIFY=chain|headers|crc; chain
  std::optional<ByteOrder> missing_byte_order;  // WEIGHTMAP_BYTEORDER=little|big|native; little
  std::optional<bool>
      populate;  // WEIGHTMAP_POPULATE=0|1; 0: fault all pages in before open returns
  std::optional<bool> no_reserve;  // WEIGHTMAP_NORESERVE=0|1; 0: MAP_NORESERVE, no swap accounting
  std::optional<bool> locked;      // WEIGHTMAP_LOCKED=0|1; 0: mlock, which needs RLIMIT_MEMLOCK
  std::optional<bool> huge_pages;  // WEIGHTMAP_HUGEPAGES=0|1; 1: MADV_HUGEPAGE before any touch
  std::optional<Protection> protection;  // WEIGHTMAP_PROTECTION=map|guard|snapshot; map
  // WEIGHTMAP_SHARED_CATALOG=0|1; 0: take over the catalog that another process of this user has
  // published for this very file instead of parsing it, or publish the one that this open makes;
  // see shared_catalogs.hpp. ArchiveReader has none.
  std::optional<bool> shared_catalog;
  Limits limits;
  // Called once at the end of an open with one line of facts, and once if the file system refused
  // MAP_SHARED. The library itself never prints.
  std::function<void(std::string_view)> log;
};

// The options an open without any would use: all fields set, environment applied. Fails with
// invalid_argument if a variable holds something else than the words above. Change what you like
// and pass it to each open.
WEIGHTMAP_API Result<OpenOptions> default_open_options();

// `options` with every unset field filled in as described at the top.
WEIGHTMAP_API Result<OpenOptions> with_defaults(OpenOptions options);

WEIGHTMAP_API std::string_view to_string(Sharing sharing) noexcept;        // "shared", "private"
WEIGHTMAP_API std::string_view to_string(Verify verify) noexcept;          // "chain", ...
WEIGHTMAP_API std::string_view to_string(ByteOrder byte_order) noexcept;   // "little", ...
WEIGHTMAP_API std::string_view to_string(Protection protection) noexcept;  // "map", ...

}  // namespace weightmap
