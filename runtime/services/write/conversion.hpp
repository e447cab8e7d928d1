// What convert() is made of: the sources and their tensors, the target, and what writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

struct SourceTensor {
  const Checkpoint* checkpoint;
  std::string_view name;  // to be written
  WholeTensor whole;

  NamedTensor first_piece() const { return checkpoint->tensors()[whole.first_piece]; }
  bool is_in_pieces() const noexcept { return whole.piece_count != 1; }
};

class ConversionSources {
 public:
  // Fails as Checkpoint::open() does; with unsupported for reserved storages that are not sealed.
  static Result<ConversionSources> open(std::span<const std::filesystem::path> paths,
                                        const OpenOptions& options);

  const std::vector<Checkpoint>& checkpoints() const noexcept { return checkpoints_; }
  Checkpoint take_one() && { return std::move(checkpoints_.front()); }
  std::uint64_t bytes() const noexcept;  // of all files together
  // True if there is exactly one file, of that format.
  bool is_one(Format format) const noexcept;

  // Fails with unsupported, naming some of `left_out`: there are no tensors, only these.
  tl::unexpected<Error> refuse_values(const std::vector<std::string>& left_out) const;

  // Returns the tensors, beginning with those in `order`, in its order. Borrowed from this object.
  // Fails with invalid_argument for a repeated name, with not_found for an unknown name in `order`.
  Result<std::vector<SourceTensor>> tensors(const std::vector<std::string>& order) const;

 private:
  ConversionSources(std::vector<std::filesystem::path> paths, std::vector<Checkpoint> checkpoints);

  std::vector<std::filesystem::path> paths_;
  std::vector<std::string> stems_;  // of the paths, for files that are one tensor without a name
  std::vector<Checkpoint> checkpoints_;
};

// Which files the target path of a conversion means.
struct ConversionTarget {
  WrittenFormat format;
  std::filesystem::path path;    // of a single file; shards derive their names from it
  bool has_index = false;        // even for one file
  std::filesystem::path folder;  // to be created; empty: none
};

// Lists the parts of a checkpoint that a conversion of its tensors omits: names as in
// ConvertReport::left_out. Opens each file of a set by itself. `metadata` is the metadata of the
// new files. With `has_values` these have Checkpoint::values().
Result<std::vector<std::string>> left_out(const Checkpoint& checkpoint, const OpenOptions& options,
                                          const SafetensorsMetadata& metadata,
                                          bool has_values = false);

// Rewrites a torch archive or a legacy stream with all its contents. `opened` is the checkpoint of
// `from`, one file.
Result<ConvertReport> relayout(Checkpoint opened, const std::filesystem::path& from,
                               const ConversionTarget& target, const ConvertOptions& options);

// Writes a legacy stream as an archive, torch.save's format since 1.6: the same object with the
// same pickle except the references to storages, which are numbered in the order of first
// reference. Fails with unsupported for an order, and for parts of storages.
Result<ConvertReport> write_legacy_as_archive(const Checkpoint& source,
                                              const std::filesystem::path& to,
                                              const ConvertOptions& options);

// Writes tensors of any checkpoints as torch archives of a dict: one, or a set with its index.
// Borrows the tensors' sources. `nested`: the one checkpoint of all of them, whose values() become
// the content of one file in place of a dict of its tensors; or nullptr.
Result<ConvertReport> write_torch_dict(const std::vector<SourceTensor>& tensors,
                                       const ConversionTarget& target,
                                       const ConvertOptions& options,
                                       const Checkpoint* nested = nullptr);

}  // namespace weightmap
