// What kind of checkpoint was opened, of which files it consists, and whether they are still there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/format.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Storages for which the writer reserved space, to be filled in afterwards (fill.hpp).
struct ReservedStorages {
  // Numbers of the storages that had not been written to when the file was opened: 3 for data/3.
  std::vector<std::uint64_t> unwritten;
  std::uint64_t storages = 0;  // that were reserved
  // Everything was written, and the checksums were computed.
  bool is_sealed = false;

  // Whether the storage of this key is one of `unwritten`.
  WEIGHTMAP_API bool is_unwritten(std::string_view key) const noexcept;
};

// The fields of `weightmap info`.
struct CheckpointInfo {
  Format format = Format::unknown;
  std::uint64_t version = 0;  // of the `version` record, or of GGUF; of a legacy stream 1001
  std::optional<std::string> format_version;  // of `.format_version`; absent before torch 2.7
  std::string_view byteorder;                 // "little" or "big"
  bool byteorder_assumed = false;             // the file does not say; options decided
  std::uint64_t storage_alignment = 64;       // bytes; of a legacy stream 1
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;
  // Sum of nbytes over all tensors; views of one storage count each.
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;    // of all files
  std::uint64_t pickle_bytes = 0;  // of data.pkl, or of the header of a safetensors or GGUF file
  // Items that were left out, since their dict has another one behind them with the same key: the
  // last wins, as in Python. 0 in every file that a pickler wrote, in one whose dicts with equal
  // keys lead to no tensor.
  std::uint64_t duplicate_keys = 0;
  // Behind the legacy stream that was read: of the next torch.save() to the same file, or anything.
  // Behind the last tensor of a GGUF file and its padding: anything.
  std::uint64_t unread_bytes = 0;
  // Names of tensors that are not listed: those of a .pt2 archive that are pickled or have no
  // strides; those of a safetensors file whose rows are not whole bytes (F6_* of which the last
  // dimension is no multiple of 4, F4 of which it is odd); those of torch.distributed.checkpoint
  // that are compressed or not strided. And names of the objects that this pickles one by one: a
  // number, a text, or something with tensors in it.
  std::vector<std::string> unsupported;
  // Of shards with an index: tensors that they have and the index does not name, which are not
  // listed. An index is often newer than what else lies in a shard.
  std::uint64_t tensors_not_indexed = 0;
  bool names_torch_safe_only = false;  // torch allows all globals by default (globals.hpp)
  // Of a file that was made with reserved storages and says so.
  std::optional<ReservedStorages> reserved;
  Sharing sharing = Sharing::shared;  // as mapped, after any fallback
  bool sharing_fell_back = false;     // the file system refused MAP_SHARED
  bool writable = false;
  Protection protection = Protection::map;
  // How a snapshot was made: "reflink". Empty without one.
  std::string_view protection_means;
};

// One of the files that a checkpoint consists of, or, behind them, the memory that compressed
// storages were inflated into.
struct SourceInfo {
  std::filesystem::path path;        // absolute; empty: opened by descriptor
  Generation generation;             // at the moment of opening
  std::uint64_t bytes = 0;           // size of the file
  std::uint64_t mapping_offset = 0;  // where it begins in Checkpoint::mapping()
  bool is_copy = false;              // that memory, which has no path
};

// What Checkpoint::verify_crc() found.
struct CrcReport {
  std::uint64_t storages_checked = 0;
  std::uint64_t storages_without_crc = 0;  // CRC 0: the writer did not compute it
  std::uint64_t bytes = 0;
  std::vector<Error> faults;  // one for each storage that differs, or could not be read
  bool cancelled = false;     // by the caller's Progress, so not all was looked at
};

// Whether what is mapped is still what was opened.
enum class CheckpointState : std::uint8_t {
  current,   // the path names this very file, and nobody has written to it
  replaced,  // the path names another file, or none. What is mapped is whole. Also the state of a
             // snapshot whose file was written to
  modified,  // the file was written to, or truncated: views show other bytes, or fault
  lost,      // the guard has put zeros in the place of pages that could not be had
};

WEIGHTMAP_API std::string_view to_string(CheckpointState state) noexcept;  // "current", ...

// Whether a SIGBUS comes to the guard first: false before anything was opened with
// Protection::guard, and after another handler was installed. If that one passes signals on, the
// guard goes on working. Opening another checkpoint with the guard puts it in front again.
WEIGHTMAP_API bool guard_is_active() noexcept;

}  // namespace weightmap
