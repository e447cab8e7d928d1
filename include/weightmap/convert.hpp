// Writes checkpoints again: in another format, laid out in another way, in fewer or more files.
//
//   weightmap::ConvertOptions options;
//   options.alignment = 2 << 20;  // so that huge pages can map each large storage by itself
//   auto report = weightmap::convert("model.pt", "aligned.pt", options);
//   report = weightmap::convert("model/", "model.safetensors");  // a folder of shards
//
// One torch archive that becomes a torch archive keeps everything: the pickle, the records besides
// those of tensors, the byte order, the name of the top folder, whether there are CRCs. A file of
// torch.save without options is copied byte for byte; records that were deflated are stored, and
// padding is made anew. A legacy stream becomes an archive with the same object.
//
// Everywhere else tensors are written by their names, in the order of the sources: as a safetensors
// file, or as a torch archive of an OrderedDict. ConvertReport::left_out names what the new files
// do not have. In a torch archive, tensors that share a storage go on to share it, with their
// strides; of a storage only the bytes between the first and the last element of its tensors are
// written.
//
// Each storage of a torch archive that becomes part of one is compared with its CRC-32 on the way,
// so damage is an error and does not get a new CRC-32. A new file appears as NewFile does it
// (new_file.hpp), also in the place of an old one, which stays whole for processes that have it
// mapped; the files of a set get their names together, as write_safetensors() does it. May be
// called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

enum class WrittenFormat : std::uint8_t {
  safetensors,
  pt,   // what torch.load reads
  pt2,  // what torch.export.load reads; only of an archive of torch.export
};

struct ConvertOptions {
  // Unset: as the name of the target ends; of a folder safetensors.
  std::optional<WrittenFormat> format = {};
  // Of a torch archive, as in CheckpointWriterOptions. Unset: as it was, or 64.
  std::optional<std::uint64_t> alignment = {};
  // Names of tensors that come first, in this order, and behind them the others as they were. In a
  // torch archive that is kept, their storages do; an array in the pickle stays there.
  std::vector<std::string> order = {};
  // Of a torch archive. Unset: as it was, or with CRCs.
  std::optional<bool> crc32 = {};
  // Bytes of tensors in each file; 0: one file. See SafetensorsOptions::max_file_bytes. Tensors
  // that share a storage stay in one file.
  std::uint64_t max_shard_bytes = 0;
  // Of a torch archive nothing but its tensors, by their names.
  bool tensors_only = false;
  // Of safetensors: more metadata; `format` is "pt" unless this says something else. That of a
  // single safetensors file stays.
  SafetensorsMetadata metadata = {};
  std::optional<SharedElements> shared = {};  // of safetensors; unset: refuse
  OpenOptions open = OpenOptions::to_look();  // of the sources
  NewFileOptions file = {};                   // of the new files
  Progress progress = {};                     // from the thread that calls, in bytes written
};

struct ConvertReport {
  WrittenFormat format = WrittenFormat::safetensors;
  std::vector<std::filesystem::path> files;  // that were written; the index last
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;   // of the new files
  std::uint64_t old_bytes = 0;  // of the files that were read
  std::uint64_t new_bytes = 0;
  std::uint64_t alignment = 64;  // of storages that are as large
  std::vector<SafetensorsReport::Dropped> dropped;
  // Names of what the sources have and the new files have not: values, objects, arrays that stand
  // in a pickle, metadata, records. A part of the tree without a tensor has one name, that of its
  // root. An object that has tensors is named, too, since its tensors alone are written.
  std::vector<std::string> left_out;
};

// Whether a conversion to this target can be asked for: what convert() refuses before it looks at a
// source. Fails with invalid_argument for a name that tells no format, and for options that are
// for another format.
WEIGHTMAP_API Result<void> check_target(const std::filesystem::path& to,
                                        const ConvertOptions& options = {});

// Writes the tensors of all sources, each of which Checkpoint::open() takes: a file, a folder, an
// index, a name in the cache of huggingface_hub. `to` is
// - a file: .safetensors, .pt, .pth, .bin or .pt2, or any name with ConvertOptions::format. Shards
//   are called model-00001-of-00003.safetensors, and their index model.safetensors.index.json;
// - such an index, which is written also if one file has all tensors;
// - a folder that is there, or a path that ends in a slash, for model.safetensors or
//   pytorch_model.bin in it.
// It may be one of the sources. Fails as Checkpoint::open(), CheckpointWriter and
// write_safetensors() do; as check_target(); with invalid_argument for a name that two sources
// have, and an alignment that cannot be; with not_found if `order` names no tensor; with
// unsupported for a tensor that the format cannot say, an order of a legacy stream that is kept,
// and a .pt2 of anything but one; with corrupt if a storage does not match its CRC-32; with io if a
// source is written to or becomes shorter meanwhile.
WEIGHTMAP_API Result<ConvertReport> convert(std::span<const std::filesystem::path> from,
                                            const std::filesystem::path& to,
                                            const ConvertOptions& options = {});
WEIGHTMAP_API Result<ConvertReport> convert(const std::filesystem::path& from,
                                            const std::filesystem::path& to,
                                            const ConvertOptions& options = {});

}  // namespace weightmap
