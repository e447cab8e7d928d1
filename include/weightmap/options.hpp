// The options of open(). docs/options.md has them as a table, with the environment variables.
//
// Every field is optional: an unset field takes the value of its environment variable, and without
// one the built-in default. So a call overrides the environment, field by field. The environment is
// read at each open (getenv: do not call setenv in another thread meanwhile). Functions in the
// options must not throw.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// MAP_SHARED or MAP_PRIVATE. With writable == false both are read-only and share the page cache
// between processes. When writable, `shared` writes reach the file, and `private_` writes stay in
// this process (copy on write, page by page).
enum class Sharing : std::uint8_t { shared, private_ };

// The checks before a view is handed out. Each level includes the one before. Those of a tensor of
// torch.distributed.checkpoint are made at its first look-up with `chain`, else by the open.
enum class Verify : std::uint8_t {
  chain,  // every calculated offset against the central directory and its neighbouring records; no
          // reads
  headers,  // ... and against the record's local header, one small read per record
  crc,      // ... and every stored byte against its CRC-32 (reads the whole file)
};

// Byte order assumed for a file that has no `byteorder` record (torch before 2.1).
enum class ByteOrder : std::uint8_t { little, big, native };

// What happens to the mapping when the file is truncated, or can no longer be read.
// docs/protection.md has the limits of each.
enum class Protection : std::uint8_t {
  map,      // maps the file itself: reading lost pages ends the process with SIGBUS
  guard,    // maps the file itself: zeros replace lost pages, and Checkpoint::state() is `lost`
  reflink,  // maps a reflink of the file, which no other process can change; fails where reflinks
            // are unsupported
};

// What happens to a pickle that names classes and functions (globals) which torch does not allow by
// default. Nothing is ever looked up or called, and names that can only do harm are always refused.
enum class Globals : std::uint8_t {
  opaque,      // they are kept as names; the arguments of their calls are searched
  torch_safe,  // the file is refused, as torch.load(weights_only=True) refuses it
};

// The memory that Backing::lend() returns for libraries without read-only memory, such as torch.
enum class CopyOnWrite : std::uint8_t {
  off,    // the mapping itself, one copy for all processes: a write ends the process with SIGSEGV
  on,     // copy_on_write(): a write copies its page and stays in this process
  small,  // `on` for storages below small_storage, `off` for the others
};
// Bytes. Tensors that engines modify (norms, biases, scales) are smaller, and those for a device
// are larger: a driver that pins private writable memory copies every page of it.
inline constexpr std::uint64_t small_storage = std::uint64_t{1} << 20;

// Bounds reading tensors element by element, to write or compare them, where strides repeat the
// stored elements (torch's expand(), or a malicious file).
enum class Repeats : std::uint8_t {
  bounded,  // at most 1024 times the stored elements, and 16777216 more
  any,
};

// How the pages of a tensor are read when they are first touched.
enum class Access : std::uint8_t {
  normal,  // with the system's read-ahead, as everything that is mapped: tensors that are read
           // whole
  random,  // each page alone (MADV_RANDOM): tables of which scattered rows are read
};

// Bounds on the cost of one file. Exceeding one gives ErrorCode::limit_exceeded and names it.
struct Limits {
  std::uint64_t pickle_bytes = std::uint64_t{1} << 30;     // size of data.pkl; must be below 4 GiB
  std::uint64_t directory_bytes = std::uint64_t{1} << 30;  // size of the central directory
  std::uint64_t record_bytes = std::uint64_t{64} << 20;    // a deflated record, inflated
  // The size of all deflated storages of a file, or arrays spelled as text, in memory and, if that
  // exceeds record_bytes, its ratio to their size in the file.
  std::uint64_t copied_bytes = std::uint64_t{16} << 30;
  std::uint64_t copied_ratio = 32;
  // The memory of a parse: this plus 5 x data.pkl for the value tree, and this plus 2 x data.pkl
  // for the tables of tensors. An open stays within 64 MiB + 8 x data.pkl plus the directory.
  std::uint64_t base_memory = std::uint64_t{24} << 20;
  std::uint32_t depth = 1000;        // nesting of containers; at most 65535
  std::uint32_t tensors = 1u << 24;  // entries of the catalog
  std::uint32_t rank = 64;           // dimensions of one tensor
};

// An ArchiveReader (archive.hpp), which maps nothing, uses only `limits`.
struct OpenOptions {
  std::optional<Sharing> sharing = {};               // how the file is mapped; shared
  std::optional<bool> writable = {};                 // maps for writing; false
  std::optional<Verify> verify = {};                 // checks during the open; chain
  std::optional<ByteOrder> missing_byte_order = {};  // for a file that does not state it; little
  // Reads and maps the whole file before the open returns, which is then as slow as the disk;
  // false. A Warmer (warmer.hpp) does so in the background.
  std::optional<bool> populate = {};
  std::optional<bool> no_reserve = {};  // MAP_NORESERVE: no swap accounting; false
  // Locks the whole file in memory (mlock) during the Checkpoint's lifetime; false. Beyond
  // RLIMIT_MEMLOCK, or the free memory of the machine and its cgroup, the open fails with io.
  std::optional<bool> locked = {};
  // Requests pages of 2 MiB for what is not cached yet (MADV_HUGEPAGE). Unset: true, but false in a
  // virtual machine whose host takes back free memory, where they are slower than small ones.
  std::optional<bool> huge_pages = {};
  std::optional<Protection> protection = {};  // against the loss of the file; map
  // Refuses a file with tensors that are not mapped in usable form: compressed storages, which are
  // inflated into memory, or the other byte order, which is swapped during copies; false.
  std::optional<bool> zero_copy_only = {};
  // The memory of Backing::lend(), and so of torch tensors made in Python; on. Without effect on a
  // checkpoint that was opened writable.
  std::optional<CopyOnWrite> copy_on_write = {};
  std::optional<Globals> globals = {};  // names that torch does not allow by default; opaque
  std::optional<Repeats> repeats = {};  // how often strides may repeat elements; bounded
  // Additional names that Globals::torch_safe accepts: "module.name", with Python 3's names.
  std::set<std::string, std::less<>> safe_globals = {};
  // Which of several variants in a folder is opened: "fp16" for model.fp16.safetensors and the
  // shards and indexes that have it in their names; empty: the files without a variant, or the only
  // one there is. The open of what is no folder fails with invalid_argument.
  std::string variant = {};
  // The dtypes of arrays in a .npz or .npy file that are listed as opaque[1] or opaque[2], by name.
  // The open fails with invalid_argument if there is no such array or the sizes differ.
  std::map<std::string, DType, std::less<>> dtypes = {};
  // How tensors are read whose names match a pattern (match_tensors()), as advise() of
  // on_demand.hpp says it at the end of the open, the last pattern of a tensor's after the others.
  // `populate` and `locked` read all of the file nevertheless. The open fails with invalid_argument
  // for a pattern that matches nothing.
  std::vector<std::pair<std::string, Access>> access = {};
  // With Protection::guard: a descriptor such as eventfd()'s that receives the number 1 as 8 bytes
  // as soon as the guard finds a file lost, for event loops. Borrowed: it must stay open until this
  // Checkpoint and those from its reopen() are destroyed. -1: none.
  int loss_event = -1;
  Limits limits = {};
  // Called while `verify` crc, `populate` or `locked` reads the file: for populate and locked by
  // the opening thread, for crc by a thread that ends before open() returns.
  Progress progress = {};
  // Called once at the end of an open with one line of facts, and once if the file system refused
  // MAP_SHARED. The library itself never prints.
  std::function<void(std::string_view)> log = {};

  // Returns options for inspection: only metadata is read, whatever the environment requests. Only
  // the byte order, the advice on huge pages and `repeats` are left to the environment.
  WEIGHTMAP_API static OpenOptions to_look();
};

// Returns the options of an open without arguments: all fields but huge_pages set, which may depend
// on the machine, with the environment applied.
// Fails with invalid_argument if a variable holds a word that docs/options.md lacks. Change
// them as needed and pass them to each open.
WEIGHTMAP_API Result<OpenOptions> default_open_options();

// Returns `options` with every unset field but huge_pages filled in as described at the top.
WEIGHTMAP_API Result<OpenOptions> with_defaults(OpenOptions options);

// Returns `options` with unset fields filled in from the environment only: with_defaults() without
// the built-in defaults, for programs with their own defaults.
WEIGHTMAP_API Result<OpenOptions> with_environment(OpenOptions options);

WEIGHTMAP_API std::string_view to_string(Sharing sharing) noexcept;        // "shared", "private"
WEIGHTMAP_API std::string_view to_string(Verify verify) noexcept;          // "chain", ...
WEIGHTMAP_API std::string_view to_string(ByteOrder byte_order) noexcept;   // "little", ...
WEIGHTMAP_API std::string_view to_string(Protection protection) noexcept;  // "map", ...
WEIGHTMAP_API std::string_view to_string(CopyOnWrite how) noexcept;        // "0", "1", "small"
WEIGHTMAP_API std::string_view to_string(Globals globals) noexcept;        // "opaque", ...
WEIGHTMAP_API std::string_view to_string(Repeats repeats) noexcept;        // "bounded", "any"
WEIGHTMAP_API std::string_view to_string(Access access) noexcept;          // "normal", "random"

}  // namespace weightmap
