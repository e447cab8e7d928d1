// Writes safetensors files: one, or a set of files with its index.
//
//   std::vector<weightmap::SafetensorsTensor> tensors;
//   for (const weightmap::NamedTensor& tensor : checkpoint.tensors()) {
//     auto made = weightmap::SafetensorsTensor::of(std::string(tensor.name), tensor.view);
//     if (!made) return fail(made.error());
//     tensors.push_back(*std::move(made));
//   }
//   auto report = weightmap::write_safetensors(std::move(tensors), {{"format", "pt"}},
//                                              "model.safetensors");
//
// Equal tensors and metadata give equal bytes. The header is padded with blanks so that the data
// begins at a multiple of 64 bytes. First come the tensors whose bytes are a multiple of 64, as
// they were given, so each of these begins at such a multiple, too; then the others, larger
// elements first and by name, so each begins at a multiple of its element's size. There are no
// holes, which the format does not allow.
//
// The elements are little-endian in the file; on a big-endian machine nothing is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

struct SafetensorsTensor {
  // UTF-8; not `__metadata__`, which is the format's own.
  std::string name = {};
  DType dtype = DType::float32;
  // Of float4_e2m1fn_x2 as torch counts; the file gets twice the last dimension, since it counts
  // single elements.
  std::vector<std::int64_t> shape = {};
  // The elements, row-major without gaps. Borrowed until they are written.
  RecordContent content = RecordContent::zeros(0);
  // Where the elements come from, if `content` is not in memory: two tensors of the same origin,
  // type, shape and strides are one and the same.
  std::span<const std::byte> origin = {};
  std::vector<std::int64_t> strides = {};  // of an origin that is not contiguous

  // All of the view, which is borrowed with its shape until it is written: contiguous elements
  // without a copy, others gathered in pieces, those of the other byte order converted. Fails with
  // unsupported where a lazy conjugate or negative makes the stored values others than the
  // tensor's.
  WEIGHTMAP_API static Result<SafetensorsTensor> of(std::string name, const TensorView& view);
};

// What becomes of tensors that share their elements, which the format cannot say.
enum class SharedElements : std::uint8_t {
  refuse,  // an error names two of them
  // Of tensors that are one and the same the first is written; the metadata gets an entry for each
  // other, from its name to that of the first, which is how safetensors.torch.save_model says it.
  // Tensors that overlap otherwise are refused.
  drop,
  copy,  // each is written
};

struct SafetensorsOptions {
  // Bytes of tensors in each file; 0: one file, however large. Tensors go to the files as they were
  // given, a new file where one would become larger than this. A tensor that is larger has a file
  // of its own, and the next ones go where those before it went. Files are numbered as they become
  // full: as transformers does it.
  std::uint64_t max_file_bytes = 0;
  bool always_index = false;  // numbered files and an index also where one has all tensors
  SharedElements shared = SharedElements::refuse;
  NewFileOptions file = {};  // how each file comes into being
  Progress progress = {};    // of the tensors' bytes, of all files; is called by the calling thread
};

// What `__metadata__` says, in this order.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsReport {
  struct File {
    std::filesystem::path path;
    std::uint64_t bytes;
  };
  struct Dropped {
    std::string name;
    std::string kept;  // the name that the same elements have in the file
  };
  std::vector<File> files;  // in their order, and the index last
  bool has_index = false;   // the tensors are in more than one file
  std::uint64_t bytes = 0;  // of all files
  std::uint64_t tensor_bytes = 0;
  std::vector<Dropped> dropped;
};

// Writes the tensors to `path`, say model.safetensors. If they need more than one file, these are
// model-00001-of-00003.safetensors and so on, each with all of the metadata, and
// model.safetensors.index.json says which has which tensor, as transformers writes it.
//
// Everything that can be refused is refused before a file is made, the space is got before the
// first byte, and until all files are on the disk none has its name (new_file.hpp): after an error
// until then all names lead to what they led to before. Then each gets its name, the index last.
// Where that fails half way, the files that had got names that were free lose them again; those
// that had replaced a file stay, so a set that is written over another of as many files may then be
// of both. What an earlier set or file of other names has left beside is not touched: take care
// that no model.safetensors lies beside a set of that name, which loaders would prefer. A set takes
// one descriptor for each file until it is whole.
//
// Fails with unsupported for a dtype that the format does not have; with invalid_argument for a
// name that is taken twice, that is `__metadata__` or not UTF-8, a content of another size than the
// shape has, a scalar of float4_e2m1fn_x2, six-bit elements that do not fill whole bytes, shared
// elements unless they are copied or dropped, metadata that is not UTF-8 or has a key twice, a path
// that does not end in .safetensors while it may be that of a set; with limit_exceeded for a header
// of more than 100,000,000 bytes, which no reader takes; with io, cancelled, or what a content
// fails with. Not for use on one path by two threads.
WEIGHTMAP_API Result<SafetensorsReport> write_safetensors(std::vector<SafetensorsTensor> tensors,
                                                          const SafetensorsMetadata& metadata,
                                                          const std::filesystem::path& path,
                                                          const SafetensorsOptions& options = {});

}  // namespace weightmap
