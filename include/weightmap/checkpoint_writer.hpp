// Writes a checkpoint that torch.load reads, also with weights_only, and that opens here.
//
//   weightmap::CheckpointWriter writer;
//   std::vector<weightmap::Value> items;  // name, tensor, name, tensor ...
//   for (const auto& [name, weights] : model) {
//     items.push_back(writer.values().string(name));
//     items.push_back(writer.tensor(weights));
//   }
//   auto report = std::move(writer).write(writer.ordered_dict(items), "model.pt");
//
// First everything is said: storages, tensors over them, and the tree of values that holds the
// tensors. Then it is written in one pass, in the order of torch.save: data.pkl, .format_version,
// .storage_alignment, byteorder, data/0, data/1 ..., version and the serialization id. Equal values
// and bytes give equal files; what torch.save would write for them is the same, byte for byte.
//
// The layout is computed before the first byte: plan() tells the size of the file and each offset.
// To a path it is written as ArchiveWriter does it: until everything is on the disk the path keeps
// what it has, also if that is the checkpoint whose tensors are being written. Memory is that of
// the values; the bytes of storages pass through. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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
  // Each storage begins at a multiple of this: torch's 64, or more. Beyond 65504, which is all that
  // padding can do, it must be a power of two and holds for the storages that are at least so
  // large; records of zeros, which take no space on the disk, move these to their places, and the
  // others are aligned to 64. Such files have no record .format_version, so torch asks for the
  // place of each storage instead of computing it.
  std::uint64_t alignment = 64;
  bool crc32 = true;              // see ArchiveWriterOptions
  std::string archive_name = {};  // likewise
  NewFileOptions file = {};       // likewise
  Progress progress = {};         // likewise
  // What the record `byteorder` says: how the elements in the storages lie.
  ByteOrder byte_order = ByteOrder::native;
  // Whether a file with reserved storages has a record that says which of them were filled in since
  // (fill.hpp). Without it the file is what torch.save makes under skip_data.
  bool mark_reserved = true;
  // The order of the storages in the file, by their numbers, all of them; empty: ascending. If it
  // is another, .format_version is left out as above.
  std::vector<std::size_t> order = {};
};

// Elements of a storage.
struct TensorSpec {
  DType dtype = DType::float32;
  std::int64_t storage_offset = 0;  // of the first element, in elements
  std::span<const std::int64_t> sizes = {};
  std::span<const std::int64_t> strides = {};  // in elements, as many as there are sizes
  bool requires_grad = false;
  // What the tensor does lazily, as torch says it: {"conj": True}, {"neg": True}.
  std::optional<Value> metadata = {};
};

// The texts in the references to a storage, for those who have them as values already: what is one
// object in memory is one in the file.
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
  std::vector<WrittenStorage> storages;  // by their numbers
};

class WEIGHTMAP_API CheckpointWriter {
 public:
  explicit CheckpointWriter(const CheckpointWriterOptions& options = {});
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();

  // What values are made with: dicts, lists, numbers, texts, calls.
  ValueBuilder& values() noexcept;

  // Adds a storage and returns its number, which is its record's: "data/0" for the first. The
  // content is borrowed until it is written. `location` is where torch.load puts it: "cuda:0".
  std::size_t add_storage(RecordContent content, std::string_view location = "cpu");
  std::size_t add_storage(RecordContent content, const StorageTexts& texts);
  // The reference to a storage that stands in the calls of tensors, which says of what type its
  // elements are. Precondition: there is a storage of this number.
  Value storage(std::size_t number, DType dtype);
  // A tensor over a storage of this number. Precondition: the same, as many strides as sizes, and a
  // dtype that torch has, so none that is blocked.
  Value tensor(std::size_t storage, const TensorSpec& spec);
  // A storage with the elements of the view in this machine's byte order, and a tensor over all of
  // it. The view is borrowed with its shape: contiguous elements are written without a copy, others
  // gathered in pieces, those of the other byte order converted. Fails with unsupported for a
  // blocked dtype, and where a lazy conjugate or negative makes the stored values others than the
  // tensor's.
  Result<Value> tensor(const TensorView& view, bool requires_grad = false);
  // torch.nn.Parameter(tensor)
  Value parameter(const Value& tensor, bool requires_grad = true);
  // collections.OrderedDict of the items, which are key, value, key, value ...; what
  // Module.state_dict() gives. `state` is what it is given as attributes, such as {"_metadata":
  // ..}.
  Value ordered_dict(std::span<const Value> items, std::optional<Value> state = {});
  // torch.Size
  Value size(std::span<const std::int64_t> sizes);

  // A record behind those of the storages, which torch.load does not look at.
  void add_record(std::string name, RecordContent content);

  // What write() to this path would write. Nothing can be added afterwards, and write() writes just
  // this. Fails as write() does, but for the system's reasons: it touches no file.
  Result<WritePlan> plan(const Value& root, const std::filesystem::path& path);

  // Writes the tree below `root` and all storages, and returns what it has written. The writer is
  // used up. Fails with invalid_argument for a tensor or an order that does not fit its storages,
  // a text that is not UTF-8, an alignment that cannot be; with limit_exceeded for a tree that
  // nests too deep or a pickle beyond 4 GiB; with io, cancelled, or what a content fails with, as
  // ArchiveWriter does. Then nothing is left behind.
  Result<WritePlan> write(const Value& root, const std::filesystem::path& path) &&;
  Result<WritePlan> write(const Value& root, ArchiveWriter::Write write) &&;

 private:
  struct WEIGHTMAP_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
