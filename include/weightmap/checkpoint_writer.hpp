// Writes a checkpoint for torch.load, also with weights_only, and for this library.
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

#include "weightmap/archive_writer.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"
#include "weightmap/options.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value_builder.hpp"

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
  // (fill.hpp). Without it the file equals that of torch.save under skip_data.
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

}  // namespace weightmap
