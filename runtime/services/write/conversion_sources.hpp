// The source checkpoints of a conversion, and their tensors.
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
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

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

}  // namespace weightmap
