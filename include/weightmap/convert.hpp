// Rewrites checkpoints: in another format, with another layout, in fewer or more files.
//
//   weightmap::ConvertOptions options;
//   options.alignment = 2 << 20;  // so that huge pages can map each large storage by itself
//   auto report = weightmap::convert("model.pt", "aligned.pt", options);
//   report = weightmap::convert("model/", "model.safetensors");  // a folder of shards
//
// One torch archive that becomes a torch archive keeps everything: the pickle, records without
// tensors, the byte order, the name of the top folder, the presence of CRCs. A file of torch.save
// without options is copied byte for byte; deflated records are stored, and padding is written
// anew. A legacy stream becomes an archive with the same object.
//
// In all other cases tensors are written by their names, in the order of the sources: as a
// safetensors file, or as a torch archive of an OrderedDict. A file that is one tensor has no name
// for it, and gives it its own, without the ending. ConvertReport::left_out names what the new
// files lack. In a torch archive, tensors that share a storage still share it, with their
// strides; only the bytes between the first and the last element of its tensors are written.
//
// A storage that is copied from one torch archive to another is compared with its CRC-32, so damage
// is an error and does not get a new CRC-32. A new file appears atomically, as with NewFile
// (new_file.hpp), and an old one stays intact for processes that have it mapped; the files of a set
// get their names together, as with write_safetensors(). May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/safetensors_writer.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

enum class WrittenFormat : std::uint8_t {
  safetensors,
  pt,   // what torch.load reads
  pt2,  // what torch.export.load reads; only from an archive of torch.export
};

struct ConvertOptions {
  // Unset: from the extension of the target; safetensors for a folder.
  std::optional<WrittenFormat> format = {};
  // For torch archives, see CheckpointWriterOptions. Unset: unchanged, or 64.
  std::optional<std::uint64_t> alignment = {};
  // Names of tensors that come first, in this order; the others follow unchanged. In a torch
  // archive that is kept this orders the storages; an array in the pickle stays there.
  std::vector<std::string> order = {};
  // For torch archives. Unset: unchanged, or with CRCs.
  std::optional<bool> crc32 = {};
  // Bytes of tensors in each file; 0: one file. See SafetensorsOptions::max_file_bytes. Tensors
  // that share a storage stay in one file.
  std::uint64_t max_shard_bytes = 0;
  // Writes only the tensors of a torch archive, by their names.
  bool tensors_only = false;
  // For safetensors: additional metadata; `format` is "pt" unless it is set here. The metadata of a
  // single safetensors file is kept.
  SafetensorsMetadata metadata = {};
  std::optional<SharedElements> shared = {};  // for safetensors; unset: refuse
  OpenOptions open = OpenOptions::to_look();  // for the sources
  NewFileOptions file = {};                   // for the new files
  Progress progress = {};                     // called by the calling thread, with bytes written
};

struct ConvertReport {
  WrittenFormat format = WrittenFormat::safetensors;
  std::vector<std::filesystem::path> files;  // the written files; the index last
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;   // of the new files
  std::uint64_t old_bytes = 0;  // of the files that were read
  std::uint64_t new_bytes = 0;
  std::uint64_t alignment = 64;  // of storages of at least this size
  std::vector<SafetensorsReport::Dropped> dropped;
  // Names of parts of the sources that the new files lack: values, objects, arrays in a pickle,
  // metadata, records. A subtree without tensors is named by its root. An object that has tensors
  // is named, too, as "model (all but its tensors)".
  std::vector<std::string> left_out;
};

// Checks the target and options as convert() does before it opens a source. Fails with
// invalid_argument for a name that implies no format, and for options of another format.
WEIGHTMAP_API Result<void> check_target(const std::filesystem::path& to,
                                        const ConvertOptions& options = {});

// Writes the tensors of all sources, which Checkpoint::open() must accept: a file, a folder, an
// index, a name in the cache of huggingface_hub. `to` is
// - a file: .safetensors, .pt, .pth, .bin or .pt2, or any name with ConvertOptions::format;
// - an index, model.safetensors.index.json, which is written even if one file has all tensors;
// - an existing folder, or a path that ends in a slash: the file model.safetensors or
// pytorch_model.bin in it.
// Shards are named model-00001-of-00003.safetensors, and their index as above. `to` may be one of
// the sources. Fails as Checkpoint::open(), CheckpointWriter and write_safetensors() do; as
// check_target(); with invalid_argument for a name that two sources have, and an invalid alignment;
// with not_found if `order` names an unknown tensor; with unsupported for a tensor that the format
// cannot hold, an order of a legacy stream that is kept, a .pt2 from any other format, and sources
// that hold values and no tensors; with corrupt if a storage does not match its CRC-32; with io if
// a source is written to or truncated meanwhile.
WEIGHTMAP_API Result<ConvertReport> convert(std::span<const std::filesystem::path> from,
                                            const std::filesystem::path& to,
                                            const ConvertOptions& options = {});
WEIGHTMAP_API Result<ConvertReport> convert(const std::filesystem::path& from,
                                            const std::filesystem::path& to,
                                            const ConvertOptions& options = {});

}  // namespace weightmap
