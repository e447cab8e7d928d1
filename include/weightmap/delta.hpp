// Deltas of weights: what changed from one version of a model to the next, as a folder; and their
// application, which makes the new version beside the old one.
//
//   // The trainer:
//   auto delta = weightmap::write_delta("llama-1", "llama-2", "deltas/weight_v000002");
//   if (!delta) return tl::unexpected(delta.error());
//   // Each node:
//   const std::filesystem::path deltas[] = {"deltas/weight_v000002"};
//   auto applied = weightmap::apply_delta("llama", deltas, "llama@2");
//   if (!applied) return tl::unexpected(applied.error());
//   auto published = weightmap::publish("llama@2", "llama");  // leads the link there
//   if (!published) return tl::unexpected(published.error());
//
// The format is that of slime, miles, SGLang and ModelExpress (slime,
// backends/megatron_utils/update_weight/update_weight_from_disk_delta.py and utils/disk_delta.py):
// a folder with an index of shards, model.safetensors.index.json, whose metadata has version,
// base_version, delta_encoding, compression_format (zstd) and checksum_format; and with
// safetensors, in which each tensor that changed is one frame of zstd, as bytes (U8), and
// __metadata__ has the sum of what the tensor will be, by its name.
//
// A tensor that did not change is in none of its files. What a frame holds is, with `xor`, as many
// bytes as the tensor has, to be combined with the old ones; with `overwrite`, a number of changed
// bytes, their positions in ascending order, each of four bytes, and the new bytes.
//
// The functions may be called from any thread.
#pragma once

#include <cstddef>
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

enum class DeltaEncoding : std::uint8_t {
  xor_bytes,  // "xor": small where each element changes by a little
  overwrite,  // of tensors of less than 4 GiB: smaller where few elements change
};
// Returns "xor" or "overwrite", the format's words.
WEIGHTMAP_API std::string_view to_string(DeltaEncoding encoding) noexcept;

// By which each tensor is compared with what it shall be.
enum class TensorSum : std::uint8_t {
  xxh3_128,  // "xxh3-128"
  blake3,    // only in a build that found BLAKE3's C library; see has_blake3()
  adler32,   // weak: the one that ModelExpress writes
};
// Returns "xxh3-128", "blake3" or "adler32", the format's words.
WEIGHTMAP_API std::string_view to_string(TensorSum sum) noexcept;
WEIGHTMAP_API bool has_blake3() noexcept;

struct DeltaOptions {
  DeltaEncoding encoding = DeltaEncoding::xor_bytes;
  TensorSum sum = TensorSum::xxh3_128;
  int level = 1;  // of zstd, 1 to 19
  // Unset: what the folder is called, as weight_v000002 is; else one more than `base_version`.
  std::optional<std::string> version = {};
  // Unset: what `from` says its version is; else 000000. See ApplyOptions.
  std::optional<std::string> base_version = {};
  // A file of the delta has the changes of about so many bytes of tensors; what they are compressed
  // to is in memory until it is written.
  std::uint64_t file_bytes = std::uint64_t{4} << 30;
  std::size_t threads = 0;  // that compress; 0: one for each processor
  bool durable = true;      // wait for the disk
  OpenOptions open = OpenOptions::to_look();
  Progress progress = {};  // with bytes of tensors; by one thread at a time
};

struct DeltaReport {
  std::string version;
  std::string base_version;
  std::vector<std::filesystem::path> files;  // the index last
  std::uint64_t tensors = 0;
  std::uint64_t changed_tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t changed_bytes = 0;  // that differ
  std::uint64_t bytes = 0;          // of the files
};

// Writes what changed from `from` to `to`, two checkpoints of any formats, as a new folder, which
// appears under its name when it is complete.
//
// Fails as Checkpoint::open() does; with invalid_argument if both have not the same tensors, by
// name, type and shape, which the format cannot express; if the folder exists, or for versions that
// do not ascend; with unsupported for a tensor whose elements lie not one after the other in this
// machine's byte order, for `overwrite` of a larger tensor, and a sum that this build lacks; with
// io if the system refuses, or if a file was written to meanwhile; with cancelled.
WEIGHTMAP_API Result<DeltaReport> write_delta(const std::filesystem::path& from,
                                              const std::filesystem::path& to,
                                              const std::filesystem::path& folder,
                                              const DeltaOptions& options = {});

struct ApplyOptions {
  // Of `base`, if nothing in it says so. Unset: what its file weightmap_version.json has, which
  // apply_delta() writes; else its index of shards; else its name if that is like weight_v000002;
  // else it is the one before all deltas, 000000.
  std::optional<std::string> base_version = {};
  std::size_t threads = 0;  // that decompress; 0: one for each processor
  bool durable = true;      // wait for the disk; without meaning for shared memory
  // Makes it once for all who ask for the same `to`: one that is there already, of the version that
  // the deltas lead to and with its files, is the answer. While another process makes it, this one
  // waits, and takes over from one that dies.
  bool once = false;
  OpenOptions open = OpenOptions::to_look();
  Progress progress = {};  // with bytes of the new files; by one thread at a time
};

struct ApplyReport {
  std::string version;
  std::string base_version;
  bool made = true;                          // false: it was there already; see ApplyOptions::once
  std::vector<std::filesystem::path> files;  // of the weights, in the new folder
  std::size_t deltas = 0;
  std::uint64_t tensors = 0;
  std::uint64_t changed_tensors = 0;
  std::uint64_t bytes = 0;         // of the new files with weights
  std::uint64_t shared_bytes = 0;  // of these, in files that began as reflinks of the old ones
  std::uint64_t delta_bytes = 0;   // that were read
};

// Makes a new version of a model: the folder `base` with safetensors and what lies beside them, to
// which the deltas are applied, in this order. None of the versions between is written. The new
// folder `to` appears under its name when it is complete, with the same files: weights at the same
// places in files of the same names, and copies of the files beside them that are no weights.
// `base` is only read: who has it mapped keeps it as it is. Where the file system has reflinks,
// tensors that did not change take no space.
//
// All is proven before `to` has its name: that the versions follow one another, that all files and
// tensors are there, that each frame holds what its tensor needs and no more, and that each changed
// tensor has the sum that its delta gives it. A failure leaves nothing behind; a process that was
// killed leaves a folder ".NAME.weightmap-new", which the next call for the same `to` removes.
//
// Fails as Checkpoint::open() does; with invalid_argument if `base` is no folder, `to` exists, or a
// delta is for another version; with not_a_checkpoint for a folder that is no delta; with
// unsupported for a base of another format, an unknown encoding or sum, another compression; with
// corrupt for damage, naming file, tensor and offset; with limit_exceeded if the frames of one
// tensor in all the deltas need more than 512 MiB at once to be decompressed; with io if the system
// refuses, or if a file was written to meanwhile, or, unless with `once`, if another process makes
// the same version now; with cancelled.
WEIGHTMAP_API Result<ApplyReport> apply_delta(const std::filesystem::path& base,
                                              std::span<const std::filesystem::path> deltas,
                                              const std::filesystem::path& to,
                                              const ApplyOptions& options = {});

// Does the same in place, for where there is no room for two versions: changes the files of `base`,
// one window after the other, in this thread. All is proven before a byte is written, as above, so
// each frame is read twice.
//
// Whoever had a file mapped would see two versions mixed, so it is refused while anybody has one of
// them open (by a lease, fcntl(2)), and while they are changed the folder is called
// ".NAME.weightmap-in-place", so that nobody opens it. Who opens a file all the same waits for up
// to 45 seconds. If the process is killed, or a write fails, the next call with the same deltas
// goes on; until then there is no model of this name. A loss of power may leave what no call can
// mend.
//
// Fails as apply_delta() does; with io if a file is open elsewhere; with unsupported if the file
// system has no leases, or a file is a link, or has other names. ApplyOptions::threads and ::once
// are ignored.
WEIGHTMAP_API Result<ApplyReport> apply_delta_in_place(
    const std::filesystem::path& base, std::span<const std::filesystem::path> deltas,
    const ApplyOptions& options = {});

// Returns the version that apply_delta() takes the model in a folder for; see ApplyOptions. Fails
// as it does for a base.
WEIGHTMAP_API Result<std::string> model_version(const std::filesystem::path& folder);

}  // namespace weightmap
