// What is known of an open checkpoint: its format, its files and their state, what the open
// counted; and sums of whole files.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

enum class Format : std::uint8_t {
  unknown,       // nothing was opened
  torch_zip,     // torch.save() since torch 1.6: an archive with a pickle
  torchscript,   // torch.jit.save()
  pt2,           // torch.export.save()
  torch_legacy,  // torch.save() before torch 1.6: a stream of pickles and elements
  safetensors,
  gguf,
  npz,     // numpy's archive of arrays
  npy,     // numpy's file of one array, which is listed as arr_0, as numpy.savez would name it
  dcp,     // a folder of torch.distributed.checkpoint
  mixed,   // several files that differ in format
  zip,     // only of list_globals(): an archive without data.pkl
  pickle,  // a pickle of values and arrays, of pickle.dump() or joblib.dump()
};

// The enumerator's name.
constexpr std::string_view to_string(Format format) noexcept {
  constexpr std::string_view names[] = {
      "unknown", "torch_zip", "torchscript", "pt2",   "torch_legacy", "safetensors", "gguf",
      "npz",     "npy",       "dcp",         "mixed", "zip",          "pickle"};
  return names[static_cast<std::uint8_t>(format)];
}

// Archives of records, as archive.hpp reads them and torch writes them.
constexpr bool is_torch_archive(Format format) noexcept {
  return format == Format::torch_zip || format == Format::torchscript || format == Format::pt2;
}

// A file is a header and the elements of tensors, so an open reads all that describes them, and
// there is no place for a pickle.
constexpr bool is_header_and_elements(Format format) noexcept {
  return format == Format::safetensors || format == Format::gguf || format == Format::npy;
}

// The identity of a file's content, which distinguishes versions of a checkpoint: fields of
// fstat(). They differ between files, and between versions of one file that was rewritten, grown or
// truncated. A forged modification time goes unnoticed.
struct Generation {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // since 1970
  std::int64_t ctime_ns = 0;

  friend bool operator==(const Generation&, const Generation&) noexcept = default;
  // Returns true if the content is the same. The change time is not compared: renaming, linking and
  // unlinking a file change it without changing the content.
  bool same_content(const Generation& other) const noexcept {
    return device == other.device && inode == other.inode && size == other.size &&
           mtime_ns == other.mtime_ns;
  }
};

// Returns the generation of the file now at `path`; fails with io if there is none, or if the
// system refuses access. May be called from any thread.
WEIGHTMAP_API Result<Generation> generation_at(const std::filesystem::path& path);

// The method by which the payload offset of a storage was found; see docs/offsets.md.
enum class OffsetStrategy : std::uint8_t {
  none,        // the file has no storages, or their offsets are read later
  calculated,  // by the padding rule, proven by the next record; begins where the previous one
               // ended
  directory,   // the same, but other data lies between it and the previous storage
  headers,     // by the record's own local header
};
// Returns "none", "calculated", "directory" or "headers".
WEIGHTMAP_API std::string_view to_string(OffsetStrategy strategy) noexcept;

// What an open counted. All counts of reads and headers belong to this open only.
struct OpenStats {
  // The weakest strategy that any storage needed.
  OffsetStrategy strategy = OffsetStrategy::none;
  std::uint64_t storages_calculated = 0;
  std::uint64_t storages_by_directory = 0;
  std::uint64_t storages_by_header = 0;

  // Local file headers read to find a payload; reads that only verify are counted below.
  std::uint64_t local_headers_read = 0;
  std::uint64_t local_headers_verified = 0;
  // References to a storage whose offset was already in the cache (tied weights, views).
  std::uint64_t cache_hits = 0;

  // pread calls for metadata and their bytes, without those that only verify.
  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t verify_reads = 0;
  std::uint64_t verify_bytes_read = 0;

  // Storages that were copied into memory, deflated or spelled as text, and their size there.
  std::uint64_t storages_copied = 0;
  std::uint64_t bytes_copied = 0;

  // Wall-clock time of the whole open and of its stages.
  std::chrono::nanoseconds total{};
  std::chrono::nanoseconds directory{};  // find and parse the central directory
  std::chrono::nanoseconds pickle{};     // read and run data.pkl
  std::chrono::nanoseconds catalog{};    // tensors, offsets, catalog and name index
  std::chrono::nanoseconds copying{};    // inflate storages
  std::chrono::nanoseconds mapping{};    // mmap and madvise
};

// Storages for which the writer reserved space, to be filled in afterwards (CheckpointFill).
struct ReservedStorages {
  // Numbers of the storages that were unwritten when the file was opened: 3 for data/3.
  std::vector<std::uint64_t> unwritten;
  std::uint64_t storages = 0;  // number of reserved storages
  // True once everything was written and the checksums were computed.
  bool is_sealed = false;

  // True if the storage of this key is one of `unwritten`.
  WEIGHTMAP_API bool is_unwritten(std::string_view key) const noexcept;
};

// The fields of `weightmap ls --info`.
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
  bool names_torch_safe_only = false;  // torch allows all globals by default
  // Set for a file that was made with reserved storages and records them.
  std::optional<ReservedStorages> reserved;
  Sharing sharing = Sharing::shared;  // after any fallback
  bool sharing_fell_back = false;     // the file system refused MAP_SHARED
  bool writable = false;
  Protection protection = Protection::map;
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

// The result of verify_crc().
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
             // reflink whose file was written to
  modified,  // the file was written to, or truncated: views show other bytes, or fault
  lost,      // the guard has replaced pages that could not be read with zeros
};

WEIGHTMAP_API std::string_view to_string(CheckpointState state) noexcept;  // "current", ...

// Returns true if a SIGBUS reaches the guard first: false before the first open with
// Protection::guard, and after another handler was installed. If that handler passes signals on,
// the guard still works. Opening another checkpoint with the guard puts it in front again.
WEIGHTMAP_API bool guard_is_active() noexcept;

// Compares whole files of any format with their SHA-256: with lists that sha256sum writes, and with
// what the cache of huggingface_hub says. Safetensors, GGUF and torch's stream of before 1.6 have
// no checksums of their own.

struct FileSum {
  std::filesystem::path file;  // absolute
  std::string sha256;          // 64 lower-case digits
  std::string source;          // who says so, for error messages: "SHA256SUMS, line 3"
  std::string name = {};       // in a list
};

// Returns a line of 64 digits in lower case; empty for any other text.
WEIGHTMAP_API std::string normal_sha256(std::string_view hex);

// Reads a list as sha256sum writes and reads it, also with --tag, or the digests in a signature of
// OpenSSF Model Signing ("model.sig"), which it does not verify. A name in it is a file beside the
// list, and one in the current directory. Fails with io, with corrupt for a line or a field that is
// none, with unsupported for a signature of another version or of parts of files.
WEIGHTMAP_API Result<std::vector<FileSum>> read_sums(const std::filesystem::path& list);

// Returns what a file of the cache of huggingface_hub should hold: the name of the blob that it is
// a link to, if that has 64 digits. Small files of the cache have another name, and no sum.
WEIGHTMAP_API std::vector<FileSum> hub_sums(std::span<const std::filesystem::path> files);

struct SumReport {
  std::vector<std::filesystem::path> compared;  // of the files, those that a sum was found for
  std::uint64_t bytes = 0;                      // of them
  std::vector<Error> faults;                    // one for each that differs or could not be read
  bool cancelled = false;                       // by the caller's Progress
};

// Reads each file that `sums` have, once, and compares it with all sums of it.
WEIGHTMAP_API SumReport compare_sums(std::span<const std::filesystem::path> files,
                                     std::span<const FileSum> sums, const Progress& progress = {});

// fs-verity, which ext4, f2fs and btrfs may have: nobody can write to a sealed file any more, and
// whenever the kernel reads pages of it, it compares them with what was there at the sealing.

// Seals a file for good: the kernel reads and measures all of it. Its times stay. Does nothing to
// one that is sealed. Fails with unsupported if its file system or the kernel has none of it, with
// io if the system refuses: of a file that is open for writing, or of another user.
WEIGHTMAP_API Result<void> enable_fs_verity(const std::filesystem::path& file);
// Asks the kernel what it measured: "sha256:" and 64 digits, which are those of `fsverity digest`
// and not of the bytes alone. Empty for a file that is not sealed.
WEIGHTMAP_API Result<std::string> fs_verity_digest(const std::filesystem::path& file);

}  // namespace weightmap
