// Writes safetensors files: one, or a set of files with its index.
//
//   std::vector<weightmap::SafetensorsTensor> tensors;
//   for (const weightmap::NamedTensor& tensor : checkpoint.tensors()) {
//     auto made = weightmap::SafetensorsTensor::of(std::string(tensor.name), tensor.view);
//     if (!made) return tl::unexpected(made.error());
//     tensors.push_back(*std::move(made));
//   }
//   auto report = weightmap::write_safetensors(std::move(tensors), {{"format", "pt"}},
//                                              "model.safetensors");
//
// Equal tensors and metadata give equal bytes. The header is padded with spaces so that the data
// begins at a multiple of 64 bytes. Tensors whose bytes are a multiple of 64 come first, in the
// given order, so each of these begins at such a multiple, too; then the others, larger elements
// first and by name, so each begins at a multiple of its element's size. There are no holes, which
// the format forbids.
//
// The elements are little-endian in the file; writing on a big-endian machine fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

struct SafetensorsTensor {
  // UTF-8; not `__metadata__`, which the format reserves.
  std::string name = {};
  DType dtype = DType::float32;
  // For float4_e2m1fn_x2 in torch's count; the file gets twice the last dimension, since the format
  // counts single elements.
  std::vector<std::int64_t> shape = {};
  // The elements, row-major without gaps. Borrowed until they are written.
  RecordContent content = RecordContent::zeros(0);
  // The memory of the elements if `content` is not in memory: two tensors of the same origin, type,
  // shape and strides are identical.
  std::span<const std::byte> origin = {};
  std::vector<std::int64_t> strides = {};  // of an origin that is not contiguous

  // Returns a tensor for the whole view, which is borrowed with its shape until it is written:
  // contiguous elements are not copied, others are gathered in pieces, foreign byte order is
  // converted. Fails with unsupported if a lazy conjugate or negative makes the stored values
  // differ from the tensor's.
  WEIGHTMAP_API static Result<SafetensorsTensor> of(std::string name, const TensorView& view);
};

// The treatment of tensors that share elements, which the format cannot express.
enum class SharedElements : std::uint8_t {
  refuse,  // fails with an error that names two of them
  // Writes the first of identical tensors; the metadata maps each other name to the first one's, as
  // safetensors.torch.save_model does. Tensors that overlap in another way are refused.
  drop,
  copy,  // writes each of them
};

struct SafetensorsOptions {
  // Bytes of tensors in each file; 0: one file, however large. Tensors are assigned in the given
  // order, with a new file whenever one would become larger than this. A larger tensor has a file
  // of its own, and the following ones continue the previous file. Files are numbered in the order
  // in which they become full, as transformers does.
  std::uint64_t max_file_bytes = 0;
  bool always_index = false;  // numbers the files and writes an index even for one file
  SharedElements shared = SharedElements::refuse;
  NewFileOptions file = {};  // how each file is created
  Progress progress = {};    // for the tensors' bytes of all files; called by the calling thread
};

// The content of `__metadata__`, in this order.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsReport {
  struct File {
    std::filesystem::path path;
    std::uint64_t bytes;
  };
  struct Dropped {
    std::string name;
    std::string kept;  // the name of the same elements in the file
  };
  std::vector<File> files;  // in order; the index last
  bool has_index = false;   // the tensors are in more than one file
  std::uint64_t bytes = 0;  // of all files
  std::uint64_t tensor_bytes = 0;
  std::vector<Dropped> dropped;
};

// Writes the tensors to `path`, say model.safetensors. If they need more than one file, these are
// model-00001-of-00003.safetensors and so on, each with all of the metadata, and
// model.safetensors.index.json maps tensors to files, as transformers writes it.
//
// All refusals happen before a file is created, the space is allocated before the first byte, and
// no file gets its name before all are on the disk (new_file.hpp): an error until then leaves all
// names unchanged. Then each file gets its name, the index last. If that fails half way, the files
// whose names were free lose them again; those that replaced a file stay, so a set that overwrites
// another of as many files may then be a mixture. Other files of an earlier set remain: make sure
// that no model.safetensors lies beside a set of that name, since loaders would prefer it. A set
// uses one descriptor for each file until it is complete.
//
// Fails with unsupported for a dtype that the format does not have; with invalid_argument for a
// repeated name, one that is `__metadata__` or not UTF-8, a content whose size does not fit the
// shape, a scalar of float4_e2m1fn_x2, six-bit elements that do not fill whole bytes, shared
// elements unless they are copied or dropped, metadata that is not UTF-8 or has a key twice, a path
// of a possible set that does not end in .safetensors; with limit_exceeded for a header of more
// than 100,000,000 bytes, which no reader accepts; with io, cancelled, or the error of a content.
// Two threads must not write to one path.
WEIGHTMAP_API Result<SafetensorsReport> write_safetensors(std::vector<SafetensorsTensor> tensors,
                                                          const SafetensorsMetadata& metadata,
                                                          const std::filesystem::path& path,
                                                          const SafetensorsOptions& options = {});

}  // namespace weightmap
