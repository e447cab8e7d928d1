// Writes a checkpoint for torch.load, also with weights_only, and for this library: at once, or
// with storages that are filled in later (CheckpointFill).
//
//   weightmap::CheckpointWriter writer;
//   std::vector<weightmap::Value> items;  // name, tensor, name, tensor ...
//   for (const auto& [name, weights] : model) {
//     items.push_back(writer.values().string(name));
//     auto tensor = writer.tensor(weights);
//     if (!tensor) return tl::unexpected(tensor.error());
//     items.push_back(*tensor);
//   }
//   auto report = std::move(writer).write(writer.ordered_dict(items), "model.pt");
//
// First the program adds everything: storages, tensors over them, and the tree of values that holds
// the tensors. Then the file is written in one pass, in the order of torch.save: data.pkl,
// .format_version, .storage_alignment, byteorder, data/0, data/1 ..., version and the serialization
// id. Equal values and bytes give equal files, and torch.save would write the same bytes.
//
// The layout is computed before the first byte: plan() returns the size of the file and each
// offset. Writing to a path works as with ArchiveWriter: until everything is on the disk the path
// keeps its old file, even if that is the checkpoint whose tensors are being written. The writer
// keeps only the values in memory; the bytes of storages are streamed. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/archive.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

struct CheckpointWriterOptions {
  // Alignment of the storages: torch's 64, or more. Beyond 65504, the limit of padding, it must be
  // a power of two and applies to storages of at least that size; records of zeros, which take no
  // space on the disk, shift these to their places, and the others are aligned to 64. Such files
  // have no record .format_version, so torch looks up each storage's place.
  std::uint64_t alignment = 64;
  bool crc32 = true;              // see ArchiveWriterOptions
  std::string archive_name = {};  // as in ArchiveWriterOptions
  NewFileOptions file = {};       // as in ArchiveWriterOptions
  Progress progress = {};         // as in ArchiveWriterOptions
  // The content of the record `byteorder`: the order of the elements in the storages.
  ByteOrder byte_order = ByteOrder::native;
  // Adds a record to a file with reserved storages that tracks which of them were filled in
  // (CheckpointFill). Without it the file equals that of torch.save under skip_data.
  bool mark_reserved = true;
  // The order of the storages in the file: all of their numbers; empty: ascending. Another order
  // omits .format_version as above.
  std::vector<std::size_t> order = {};
};

// The elements of a tensor in a storage.
struct TensorSpec {
  DType dtype = DType::float32;
  std::int64_t storage_offset = 0;  // of the first element, in elements
  std::span<const std::int64_t> sizes = {};
  std::span<const std::int64_t> strides = {};  // in elements, one for each size
  bool requires_grad = false;
  // The tensor's lazy operations, in torch's form: {"conj": True}, {"neg": True}.
  std::optional<Value> metadata = {};
};

// The texts in the references to a storage, for callers that have them as values: one object in
// memory is one in the file.
struct StorageTexts {
  Value tag;       // "storage"
  Value key;       // "0", "1" ...: the number that add_storage() is about to return
  Value location;  // "cpu"
};

struct WrittenStorage {
  std::uint64_t offset;  // of the first byte, from the beginning of the archive
  std::uint64_t nbytes;
  bool is_reserved;  // no bytes were written
};

struct WritePlan {
  std::uint64_t archive_bytes;
  std::vector<WrittenStorage> storages;  // by number
};

class WEIGHTMAP_API CheckpointWriter {
 public:
  explicit CheckpointWriter(const CheckpointWriterOptions& options = {});
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();

  // Makes values: dicts, lists, numbers, texts, calls.
  ValueBuilder& values() noexcept;

  // Adds a storage and returns its number, which is its record's: "data/0" for the first. The
  // content is borrowed until it is written. `location` is where torch.load places it: "cuda:0".
  std::size_t add_storage(RecordContent content, std::string_view location = "cpu");
  std::size_t add_storage(RecordContent content, const StorageTexts& texts);
  // Returns the reference to a storage for calls of tensors; it states the element type.
  // Precondition: there is a storage of this number.
  Value storage(std::size_t number, DType dtype);
  // Returns a tensor over a storage of this number. Precondition: the storage exists, there are as
  // many strides as sizes, and torch has the dtype, so it is not blocked.
  Value tensor(std::size_t storage, const TensorSpec& spec);
  // Adds a storage with the elements of the view in this machine's byte order, and returns a tensor
  // over all of it. The view and its shape are borrowed: contiguous elements are written without a
  // copy, others are gathered in pieces, foreign byte order is converted. Fails with unsupported
  // for a blocked dtype, and if a lazy conjugate or negative makes stored values differ.
  Result<Value> tensor(const TensorView& view, bool requires_grad = false);
  // Returns torch.nn.Parameter(tensor).
  Value parameter(const Value& tensor, bool requires_grad = true);
  // Returns a collections.OrderedDict, the type of Module.state_dict(). `items` is key, value, key,
  // value ...; `state` has its attributes, such as {"_metadata": ..}.
  Value ordered_dict(std::span<const Value> items, std::optional<Value> state = {});
  // Returns a torch.Size.
  Value size(std::span<const std::int64_t> sizes);

  // Makes write() write the tree of another checkpoint, which must live until then, and not that
  // below its root: with what `replace` returns, a value of this writer, in the place of an object
  // or a persistent id, or with the latter where it returns nullopt.
  using Replace = std::function<std::optional<Value>(const Value& value)>;
  void write_tree(const Value& tree, Replace replace);

  // Adds a record behind the storages, which torch.load ignores.
  void add_record(std::string name, RecordContent content);

  // Returns what write() to this path will write. Nothing can be added afterwards. Touches no file,
  // but otherwise fails as write() does.
  Result<WritePlan> plan(const Value& root, const std::filesystem::path& path);

  // Writes the tree below `root` and all storages, and returns the plan that was written. The
  // writer is used up. Fails with invalid_argument for a tensor or an order that does not fit its
  // storages, a text that is not UTF-8, or an invalid alignment; with limit_exceeded for a tree
  // that nests too deep or a pickle beyond 4 GiB; with io, cancelled, or the error of a content, as
  // ArchiveWriter does. Nothing is left behind then.
  Result<WritePlan> write(const Value& root, const std::filesystem::path& path) &&;
  Result<WritePlan> write(const Value& root, ArchiveWriter::Write write) &&;

 private:
  struct WEIGHTMAP_LOCAL State;
  std::unique_ptr<State> state_;
};

class CheckpointFill;
template <>
inline constexpr bool lends_from_itself<CheckpointFill> = true;

// Fills the reserved storages of a checkpoint: in place, in any order, by any number of processes.
//
//   auto fill = weightmap::CheckpointFill::open("model.pt");
//   if (!fill) return tl::unexpected(fill.error());
//   if (auto ok = fill->write("layers.0.weight", bytes); !ok) return tl::unexpected(ok.error());
//   // ... and in one process, when all are done:
//   if (auto ok = fill->seal(); !ok) return tl::unexpected(ok.error());
//
// The file's layout does not change, so processes that have it open see the writes. An unsealed
// file opens, and CheckpointInfo::reserved lists the unwritten storages; torch.load reads zeros
// there. After a loss of power, bytes and status of earlier writes may be lost unless they were
// synced, so fill all storages again; a sealed file is complete. Const members may be called from
// several threads at once, including write() for tensors of different storages. A forked child
// becomes a filler of its own at its first call, not before.
class WEIGHTMAP_API CheckpointFill {
 public:
  struct Storage {
    std::string key;       // "3" for data/3
    std::uint64_t offset;  // of the first byte in the file
    std::uint64_t nbytes;
    bool is_written;  // by its status byte, whichever process set it
  };

  // Maps the file shared and writable. Fails as Checkpoint::open() does; with invalid_argument if
  // the file has no reserved storages or is sealed; with io if it cannot be written to, or another
  // process is sealing it.
  static Result<CheckpointFill> open(const std::filesystem::path& path);

  CheckpointFill(CheckpointFill&&) noexcept;
  CheckpointFill& operator=(CheckpointFill&&) noexcept;
  ~CheckpointFill();

  // The file as an open checkpoint. Views show what is written.
  const Checkpoint& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void checkpoint() const&& = delete;

  // Returns the reserved storages by number, with their current state.
  Result<std::vector<Storage>> storages() const;

  // The functions below take the name of a tensor and fail as Checkpoint::get() does, and with
  // invalid_argument if its storage was not reserved.

  // Writes all elements, row-major in this machine's byte order, exactly nbytes() of them. If the
  // tensor fills its storage, the storage is marked as written; otherwise the caller marks it when
  // it is complete (mark_written()). Fails with invalid_argument for a tensor that is not
  // contiguous, with io if the disk is full.
  Result<void> write(std::string_view name, std::span<const std::byte> elements) const;
  // Returns the tensor's bytes in the mapping for the caller to write and then mark. The disk space
  // is allocated here, so a full disk is an error here and no signal later.
  Result<std::span<std::byte>> writable_bytes(std::string_view name);
  // Marks the tensor's storage as completely written.
  Result<void> mark_written(std::string_view name) const;

  // Computes the checksums of all reserved storages, writes everything to the disk, and marks the
  // file as sealed, in this order, so a file marked as sealed is complete. Afterwards it equals a
  // normal save plus one record. Fails with invalid_argument, naming them, if storages are
  // unwritten; with io if another CheckpointFill has the file open, or the system refuses; with
  // cancelled if `progress`, which is called from this thread, stops it. After a failure the file
  // can be filled and sealed again. If the file could not be written to the disk, its content is
  // unknown: then all storages are marked as unwritten, and must be written again.
  Result<void> seal(const Progress& progress = {});

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit CheckpointFill(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Returns the positions in Backing::storage() of unwritten storages: those that were not marked
// when the checkpoint was opened; and in a file without status bytes, as torch's skip_data leaves
// it, and in files of any format those without a checksum and without an allocated block on the
// disk, or with the file's last block unallocated. Such a hole is also what a sparse copy makes of
// zeros. Queries the file system for each storage without a checksum.
WEIGHTMAP_API std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint);

// The bytes of storages without a checksum that are holes in their files, which read as zeros:
// parts that a download has not written yet, or zeros that a sparse copy left out.
WEIGHTMAP_API std::uint64_t hole_bytes(const Checkpoint& checkpoint);

}  // namespace weightmap
