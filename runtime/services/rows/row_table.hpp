// A table whose rows lie one after the other, in one piece of the mapping or in several.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class RowTable {
 public:
  // See RowReader::of().
  static Result<RowTable> of(const Checkpoint& checkpoint, std::string_view name);
  // Returns where all of a tensor lies in the mapping, also that of a scalar; no bytes at 0 if it
  // has no elements. Fails as whole_tensor() does, and with unsupported as of() does, or if it lies
  // in several pieces.
  static Result<ByteRange> range_of_whole(const Checkpoint& checkpoint, std::string_view name);

  struct Piece {
    std::int64_t first_row;
    std::uint64_t position;  // in the mapping
    std::uint64_t bytes;
  };
  const std::string& name() const noexcept { return name_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::uint64_t row_bytes() const noexcept { return row_bytes_; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  // Returns where the row lies in the mapping. Precondition: 0 <= row < rows().
  ByteRange range_of(std::int64_t row) const noexcept;

 private:
  Result<void> add(const Checkpoint::State& state, const TensorView& view, std::int64_t first_row);

  std::string name_;
  std::int64_t rows_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::vector<Piece> pieces_;  // by their first rows
};

}  // namespace weightmap
