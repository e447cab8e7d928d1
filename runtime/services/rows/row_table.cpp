#include "runtime/services/rows/row_table.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/chunks.hpp"

namespace weightmap {
namespace {

tl::unexpected<Error> refused(ErrorCode code, std::string_view name, std::string why) {
  return failure(code, "tensor " + bytes::quote(name) + ": " + std::move(why));
}

// True if the rows of a view are bytes that stand for themselves, one row after the other.
bool is_plain(const TensorView& view) noexcept {
  return view.is_contiguous() && !view.is_foreign_byte_order() && !view.is_conjugate() &&
         !view.is_negative();
}

// Where the bytes of a view lie in the mapping.
Result<ByteRange> place_of(const Checkpoint::State& state, const TensorView& view,
                           std::string_view name) {
  if (!is_plain(view))
    return refused(ErrorCode::unsupported, name,
                   "its rows do not lie one after the other, in whole bytes of this machine's "
                   "byte order");
  const std::optional<std::uint64_t> position = state.position_of(view.bytes());
  if (!position) return refused(ErrorCode::unsupported, name, "its bytes are in no file");
  return ByteRange{*position, view.nbytes()};
}

}  // namespace

Result<ByteRange> RowTable::range_of_whole(const Checkpoint& checkpoint, std::string_view name) {
  TRY_ASSIGN(const std::vector<TensorPiece> pieces, weightmap::pieces(checkpoint, name));
  if (pieces.empty()) return ByteRange{};
  if (pieces.size() > 1) return refused(ErrorCode::unsupported, name, "lies in several pieces");
  return place_of(Checkpoint::Access::state(checkpoint), pieces.front().view, name);
}

Result<RowTable> RowTable::of(const Checkpoint& checkpoint, std::string_view name) {
  TRY_ASSIGN(const WholeTensor whole, whole_tensor(checkpoint, name));
  if (whole.sizes.empty())
    return refused(ErrorCode::invalid_argument, name, "is a scalar, which has no rows");
  RowTable table;
  table.name_ = name;
  table.rows_ = whole.sizes.front();
  TRY_ASSIGN(const std::vector<TensorPiece> pieces, weightmap::pieces(checkpoint, name));
  for (const TensorPiece& piece : pieces) {
    const TensorView& view = piece.view;
    if (!std::equal(view.shape().begin() + 1, view.shape().end(), whole.sizes.begin() + 1))
      return refused(
          ErrorCode::unsupported, name,
          "is divided along another dimension than the first, so its rows are not whole");
    TRY(table.add(Checkpoint::Access::state(checkpoint), view, piece.offsets.front()));
  }
  if (table.pieces_.empty() && table.rows_ != 0)
    return refused(ErrorCode::unsupported, name, "its rows have no bytes");
  return table;
}

Result<void> RowTable::add(const Checkpoint::State& state, const TensorView& view,
                           std::int64_t first_row) {
  TRY_ASSIGN(const ByteRange range, place_of(state, view, name_));
  const std::uint64_t rows = static_cast<std::uint64_t>(view.shape().front());
  if (range.length % rows != 0)
    return refused(ErrorCode::unsupported, name_, "its rows are not whole bytes");
  row_bytes_ = range.length / rows;
  pieces_.push_back({first_row, range.offset, range.length});
  return {};
}

ByteRange RowTable::range_of(std::int64_t row) const noexcept {
  auto piece = pieces_.begin();
  if (pieces_.size() > 1)
    piece = std::prev(std::ranges::upper_bound(pieces_, row, {}, &Piece::first_row));
  return {piece->position + static_cast<std::uint64_t>(row - piece->first_row) * row_bytes_,
          row_bytes_};
}

}  // namespace weightmap
