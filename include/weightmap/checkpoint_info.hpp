// The kind of an open checkpoint, its files, and their current state.
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
  // Numbers of the storages that were unwritten when the file was opened: 3 for data/3.
  std::vector<std::uint64_t> unwritten;
  std::uint64_t storages = 0;  // number of reserved storages
  // True once everything was written and the checksums were computed.
  bool is_sealed = false;

  // True if the storage of this key is one of `unwritten`.
  WEIGHTMAP_API bool is_unwritten(std::string_view key) const noexcept;
};

// The fields of `weightmap info`.
struct CheckpointInfo {
  Format format = Format::unknown;
  std::uint64_t version = 0;  // of the `version` record, or of GGUF; 1001 for a legacy stream
  std::optional<std::string> format_version;  // of `.format_version`; absent before torch 2.7
  std::string_view byteorder;                 // "little" or "big"
  bool byteorder_assumed = false;             // the file does not state it; the options decided
  std::uint64_t storage_alignment = 64;       // bytes; 1 for a legacy stream
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;
  // The sum of nbytes over all tensors; views of one storage count separately.
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;    // of all files
  std::uint64_t pickle_bytes = 0;  // of data.pkl, a bare pickle, or a safetensors or GGUF header
  // Items that were dropped because a later item of their dict has the same key: the last wins, as
  // in Python. 0 for every file of a pickler, and if no such dict leads to a tensor.
  std::uint64_t duplicate_keys = 0;
  // Bytes behind the legacy stream, from the next torch.save() to the same file or anything else;
  // or behind the last tensor of a GGUF file and its padding.
  std::uint64_t unread_bytes = 0;
  // Names of tensors that are not listed: in a .pt2 archive, those that are pickled or have no
  // strides; in a safetensors file, those whose rows are not whole bytes (F6_* with a last
  // dimension that is no multiple of 4, F4 with an odd one); in torch.distributed.checkpoint, those
  // that are compressed or not strided, and other objects that are compressed; in a .npz file
  // arrays of text, objects, dates or structures and in big-endian order, with their type, "label
  // (<U6)", and what is not named .npy: "README.txt (no .npy array)".
  std::vector<std::string> unsupported;
  // Other checkpoints in the folder that was given, which were not opened: an index beside a
  // model.safetensors, which transformers prefers, or another variant.
  std::vector<std::string> not_opened;
  // Tensors in shards that the index does not name, which are not listed. Indexes are often newer
  // than leftover tensors in a shard.
  std::uint64_t tensors_not_indexed = 0;
  bool names_torch_safe_only = false;  // torch allows all globals by default (globals.hpp)
  // Set for a file that was made with reserved storages and records them.
  std::optional<ReservedStorages> reserved;
  Sharing sharing = Sharing::shared;  // after any fallback
  bool sharing_fell_back = false;     // the file system refused MAP_SHARED
  bool writable = false;
  Protection protection = Protection::map;
  // The means of a snapshot: "reflink". Empty without one.
  std::string_view protection_means;
};

// A file of a checkpoint or, behind the files, the memory of inflated storages.
struct SourceInfo {
  // Absolute, or a remote file's name; empty: a descriptor, or memory.
  std::filesystem::path path;
  Generation generation;             // at the moment of opening
  std::uint64_t bytes = 0;           // size of the file
  std::uint64_t mapping_offset = 0;  // where it begins in Checkpoint::mapping()
  bool is_copy = false;              // true for that memory, which has no path
};

// The result of Checkpoint::verify_crc().
struct CrcReport {
  std::uint64_t storages_checked = 0;
  std::uint64_t storages_without_crc = 0;  // CRC 0: the writer did not compute it
  std::uint64_t bytes = 0;
  std::vector<Error> faults;  // one for each storage that differs or could not be read
  bool cancelled = false;     // by the caller's Progress, so the check is incomplete
};

// Compares the mapping with what was opened.
enum class CheckpointState : std::uint8_t {
  current,   // the path names this very file, and it was not written to
  replaced,  // the path names another file, or none; the mapping is intact. Also the state of a
             // snapshot whose file was written to
  modified,  // the file was written to, or truncated: views show other bytes, or fault
  lost,      // the guard has replaced pages that could not be read with zeros
};

WEIGHTMAP_API std::string_view to_string(CheckpointState state) noexcept;  // "current", ...

// Returns true if a SIGBUS reaches the guard first: false before the first open with
// Protection::guard, and after another handler was installed. If that handler passes signals on,
// the guard still works. Opening another checkpoint with the guard puts it in front again.
WEIGHTMAP_API bool guard_is_active() noexcept;

}  // namespace weightmap
