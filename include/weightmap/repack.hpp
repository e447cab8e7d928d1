// Writes a checkpoint again, laid out or typed in another way, or with another tensor in it.
//
//   weightmap::RepackOptions options;
//   options.alignment = 2 << 20;  // so that huge pages can map each large storage by itself
//   options.order = {"embed.weight", "layers.0.weight"};
//   const auto report = weightmap::repack("model.pt", "model.pt", options);
//
// What is not asked for stays: the pickle, the records besides those of tensors, the byte order,
// the name of the top folder, whether there are CRCs. A file of torch.save is copied byte for byte.
// Records that were deflated are stored, and what this library knows as padding is made anew.
//
// Bytes are read, never mapped, and each record is compared with its CRC-32 on the way, so damage
// is an error and does not get a new CRC-32. Memory is that of the pickle. The new file appears as
// NewFile does it (new_file.hpp), also in the place of the old one, which stays whole for those
// who have it mapped. After an error nothing is left behind. Both functions may be called from any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct Conversion {
  DType from;
  DType to;
};

struct RepackOptions {
  // As in CheckpointWriterOptions. Unset: as it was.
  std::optional<std::uint64_t> alignment = {};
  // Names of tensors: their storages come first in the file, in this order, and behind them the
  // others as they were. Empty: all as they were.
  std::vector<std::string> order = {};
  // Unset: if the file has CRCs.
  std::optional<bool> crc32 = {};
  // Leaves out the bytes of storages that no tensor uses: what lies in front of the first byte that
  // one uses, what lies behind the last, and storages that the pickle does not mention. Tensors
  // that share a storage go on to share it.
  bool compact = false;
  // Makes each tensor of the one type one of the other; both among float64, float32, float16 and
  // bfloat16. Rounded to the nearest, of two to the even one, as torch's .to() does it. Storages
  // are converted whole. Parameters of quantized tensors stay, since torch wants them so.
  std::optional<Conversion> dtype = {};
  Limits limits = {};        // on reading the old file
  NewFileOptions file = {};  // of the new one
  Progress progress = {};    // from the thread that calls, in bytes of the new file
};

struct RepackReport {
  std::uint64_t old_bytes = 0;  // of the files
  std::uint64_t new_bytes = 0;
  std::uint64_t alignment = 0;      // of storages that are as large
  std::uint64_t storages = 0;       // of the new file
  std::uint64_t dropped_bytes = 0;  // that no tensor used
  std::uint64_t converted_tensors = 0;
};

// Fails as Checkpoint::open() and ArchiveWriter do; with not_found if `order` names no tensor; with
// invalid_argument for an alignment that cannot be, or types that are not among the four; with
// unsupported where a tensor of that type, or a storage that would be cut or converted, is pickled
// in a way that cannot be changed; with corrupt if a record does not match its CRC-32; with io if
// the file is written to or becomes shorter meanwhile.
WEIGHTMAP_API Result<RepackReport> repack(const std::filesystem::path& from,
                                          const std::filesystem::path& to,
                                          const RepackOptions& options = {});

struct UpdateOptions {
  // Whether other tensors that lie in the same bytes may change with it.
  bool shared = false;
  Limits limits = {};
  NewFileOptions file = {};
  Progress progress = {};
};

struct UpdateReport {
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::vector<std::string> others;  // that have changed, too
};

// Writes the file again with `elements`, row-major and in this machine's byte order, in the place
// of those of the tensor: a new file, which then gets the name. Fails as repack() does, as
// Checkpoint::get() does, and with invalid_argument if `elements` are not as many bytes as the
// tensor has, or if other tensors would change; with unsupported for a tensor whose elements do not
// lie row-major in one piece, are in the other byte order, or are conjugated or negated by a flag.
WEIGHTMAP_API Result<UpdateReport> update_tensor(const std::filesystem::path& path,
                                                 std::string_view name,
                                                 const RecordContent& elements,
                                                 const UpdateOptions& options = {});

}  // namespace weightmap
