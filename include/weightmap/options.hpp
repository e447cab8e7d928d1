// What open() may be told. docs/options.md has the same as a table, with the environment variables.
//
// Every field is optional: what a call leaves unset is taken from its environment variable, and
// what that leaves unset from the built-in default. So a call overrides the environment, field by
// field. The environment is read at each open (getenv: do not call setenv in another thread
// meanwhile). Functions that are given here must not throw.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// MAP_SHARED or MAP_PRIVATE. With writable == false both are read-only and both share the page
// cache between processes; they differ when writable: `shared` writes reach the file, `private_`
// writes stay in this process (copy on write, page by page).
enum class Sharing : std::uint8_t { shared, private_ };

// What is proven before a view is handed out. Each level includes the one before.
enum class Verify : std::uint8_t {
  chain,    // every calculated offset against the central directory and the records before and
            // behind it, as links of a chain; no reads
  headers,  // ... and against the record's local header, one small read a record
  crc,      // ... and every stored byte against its CRC-32 (reads the whole file)
};

// Byte order assumed for a file that has no `byteorder` record (torch before 2.1).
enum class ByteOrder : std::uint8_t { little, big, native };

// What becomes of the mapping when the file is truncated, or cannot be read any more, under it.
// docs/protection.md says what each of them can and cannot do.
enum class Protection : std::uint8_t {
  map,       // the file itself: reading what is gone ends the process with SIGBUS
  guard,     // the file itself: zeros take its place, and Checkpoint::state() says `lost`
  snapshot,  // a reflink of the file, which nobody else can change; fails where there are none
};

// What becomes of a pickle that names classes and functions (globals) which torch does not allow by
// default. Nothing is ever looked up or called, and names that can only harm are refused anyway.
enum class Globals : std::uint8_t {
  opaque,      // they are kept as their names; what they were called with is looked into
  torch_safe,  // the file is refused, as torch.load(weights_only=True) refuses it
};

// Which memory Checkpoint::lend() gives to libraries that know no read-only memory, such as torch.
enum class CopyOnWrite : std::uint8_t {
  off,    // the mapping itself, all processes' one copy: a write ends the process with SIGSEGV
  on,     // copy_on_write(): a write copies its page and stays in this process
  small,  // `on` for storages below small_storage, `off` for the others
};
// Bytes. What engines write to in place (norms, biases, scales) is smaller, and what is uploaded to
// a device is larger: a driver that pins private writable memory copies every page of it.
inline constexpr std::uint64_t small_storage = std::uint64_t{1} << 20;

// Which tensors may be gone through element by element, to write them out or to compare them, where
// their strides repeat what is stored (torch's expand(), or a file that was made to do harm).
enum class Repeats : std::uint8_t {
  bounded,  // those of at most 1024 times as many elements as are stored, and 16777216 more
  any,
};

// Bounds on what one file may cost. Reaching one gives ErrorCode::limit_exceeded and names it.
struct Limits {
  std::uint64_t pickle_bytes = std::uint64_t{1} << 30;     // size of data.pkl; must be below 4 GiB
  std::uint64_t directory_bytes = std::uint64_t{1} << 30;  // size of the central directory
  std::uint64_t record_bytes = std::uint64_t{64} << 20;    // a deflated record, inflated
  // What all deflated storages of a file may become in memory; and if that is more than
  // record_bytes, how many times what they take in the file.
  std::uint64_t copied_bytes = std::uint64_t{16} << 30;
  std::uint64_t copied_ratio = 32;
  // What the pickle may grow to: the value tree to this plus 5 x data.pkl, and the tables of
  // tensors to this plus 2 x data.pkl. So an open stays within 64 MiB + 8 x data.pkl, in addition
  // to the directory.
  std::uint64_t base_memory = std::uint64_t{24} << 20;
  std::uint32_t depth = 1000;        // nesting of containers; at most 65535
  std::uint32_t tensors = 1u << 24;  // entries of the catalog
  std::uint32_t rank = 64;           // dimensions of one tensor
};

// An ArchiveReader (archive.hpp), which maps nothing, takes `limits` of it and ignores the rest.
struct OpenOptions {
  std::optional<Sharing> sharing = {};               // how the file is mapped; shared
  std::optional<bool> writable = {};                 // map for writing; false
  std::optional<Verify> verify = {};                 // what is proven at the open; chain
  std::optional<ByteOrder> missing_byte_order = {};  // of a file that does not say; little
  // Read and map all of the file before the open returns, which is then as slow as the disk; false.
  // A Warmer (warmer.hpp) does so in the background.
  std::optional<bool> populate = {};
  std::optional<bool> no_reserve = {};  // MAP_NORESERVE: no swap accounting; false
  // Lock all of the file in memory (mlock), for as long as the Checkpoint lives; false. Beyond
  // RLIMIT_MEMLOCK, or what the machine and its cgroup have left, the open fails with io.
  std::optional<bool> locked = {};
  std::optional<bool> huge_pages = {};        // ask for pages of 2 MiB (MADV_HUGEPAGE); true
  std::optional<Protection> protection = {};  // from the loss of the file; map
  // Refuse a file whose tensors are not all in the mapping as they are: one with compressed
  // storages, which are inflated into memory, or of the other byte order, whose elements are
  // swapped as they are copied; false.
  std::optional<bool> zero_copy_only = {};
  // What lend() gives, and so what torch tensors made in Python lie in; on. Without a say where the
  // checkpoint was opened writable.
  std::optional<CopyOnWrite> copy_on_write = {};
  std::optional<Globals> globals = {};  // names that torch does not allow by default; opaque
  std::optional<Repeats> repeats = {};  // how often strides may repeat what is written; bounded
  // Names that Globals::torch_safe lets pass, too: "module.name", as Python 3 calls them.
  std::set<std::string, std::less<>> safe_globals = {};
  // With Protection::guard: a descriptor, as of eventfd(), that gets the number 1 as 8 bytes as
  // soon as the guard finds a file lost, so that an event loop learns of it. Borrowed: it must stay
  // open until this Checkpoint, and what reopen() made of it, are destroyed. -1: none.
  int loss_event = -1;
  Limits limits = {};
  // Is called while `verify` crc, `populate` or `locked` reads the file. By populate and locked
  // from the thread that opens, by crc from one that ends before open() returns.
  Progress progress = {};
  // Called once at the end of an open with one line of facts, and once if the file system refused
  // MAP_SHARED. The library itself never prints.
  std::function<void(std::string_view)> log = {};

  // For a checkpoint that is opened to be looked at: its metadata is read, and nothing else is
  // done, whatever the environment asks for. Only the byte order, the advice on huge pages and
  // `repeats` are left to the environment.
  WEIGHTMAP_API static OpenOptions to_look();
};

// The options an open without any would use: all fields set, environment applied. Fails with
// invalid_argument if a variable holds something else than the words in option_table.hpp. Change
// what you like and pass it to each open.
WEIGHTMAP_API Result<OpenOptions> default_open_options();

// `options` with every unset field filled in as described at the top.
WEIGHTMAP_API Result<OpenOptions> with_defaults(OpenOptions options);

// `options` with every unset field filled in that the environment sets: with_defaults() without the
// built-in defaults, for programs that have defaults of their own.
WEIGHTMAP_API Result<OpenOptions> with_environment(OpenOptions options);

WEIGHTMAP_API std::string_view to_string(Sharing sharing) noexcept;        // "shared", "private"
WEIGHTMAP_API std::string_view to_string(Verify verify) noexcept;          // "chain", ...
WEIGHTMAP_API std::string_view to_string(ByteOrder byte_order) noexcept;   // "little", ...
WEIGHTMAP_API std::string_view to_string(Protection protection) noexcept;  // "map", ...
WEIGHTMAP_API std::string_view to_string(CopyOnWrite how) noexcept;        // "0", "1", "small"
WEIGHTMAP_API std::string_view to_string(Globals globals) noexcept;        // "opaque", ...
WEIGHTMAP_API std::string_view to_string(Repeats repeats) noexcept;        // "bounded", "any"

}  // namespace weightmap
