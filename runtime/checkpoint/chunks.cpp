#include "weightmap/chunks.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap {
namespace {

const ComposedTensor* find_chunked(const Checkpoint& checkpoint, std::string_view name) {
  const format::Parsed& content = Checkpoint::Access::state(checkpoint).content();
  const auto found = content.chunked.find(name);
  return found == content.chunked.end() ? nullptr : &content.composed[found->second];
}

std::string shape_text(std::span<const std::int64_t> values) {
  std::string text = "[";
  for (const std::int64_t value : values)
    text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

std::string start_of_error(std::string_view name) { return "tensor " + bytes::quote(name) + ": "; }

Result<Box> checked_box(std::string_view name, const WholeTensor& tensor,
                        const std::optional<Box>& box) {
  if (!box) return Box{std::vector<std::int64_t>(tensor.sizes.size(), 0), tensor.sizes};
  const std::size_t rank = tensor.sizes.size();
  bool fits = box->offsets.size() == rank && box->sizes.size() == rank;
  for (std::size_t dim = 0; fits && dim < rank; ++dim)
    fits = box->offsets[dim] >= 0 && box->sizes[dim] >= 0 &&
           bytes::contains(static_cast<std::uint64_t>(tensor.sizes[dim]),
                           static_cast<std::uint64_t>(box->offsets[dim]),
                           static_cast<std::uint64_t>(box->sizes[dim]));
  if (fits) return *box;
  return failure(ErrorCode::invalid_argument,
                 start_of_error(name) + "the part from " + shape_text(box->offsets) +
                     " on of sizes " + shape_text(box->sizes) + " leaves the tensor of shape " +
                     shape_text(tensor.sizes));
}

bool is_empty(const Box& box) {
  return std::ranges::find(box.sizes, std::int64_t{0}) != box.sizes.end();
}

// True if a piece at `offsets` and the box have elements in common.
bool meets(std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
           const Box& box) {
  for (std::size_t dim = 0; dim < offsets.size(); ++dim)
    if (std::max(offsets[dim], box.offsets[dim]) >=
        std::min(offsets[dim] + sizes[dim], box.offsets[dim] + box.sizes[dim]))
      return false;
  return true;
}

// Precondition: they meet.
Result<TensorPiece> clip(const TensorView& view, std::span<const std::int64_t> offsets,
                         std::size_t tensor, const Box& box) {
  TRY_ASSIGN(TensorSlice part, TensorSlice::of(view));
  std::vector<std::int64_t> begin(offsets.begin(), offsets.end());
  for (std::size_t dim = 0; dim < offsets.size(); ++dim) {
    const std::int64_t from = std::max(offsets[dim], box.offsets[dim]);
    const std::int64_t to =
        std::min(offsets[dim] + view.shape()[dim], box.offsets[dim] + box.sizes[dim]);
    begin[dim] = from;
    if (to - from == view.shape()[dim]) continue;
    TRY_ASSIGN(part, part.narrow(dim, from - offsets[dim], to - from));
  }
  return TensorPiece{std::move(begin), part, tensor};
}

Result<std::vector<TensorPiece>> pieces_in(const Checkpoint& checkpoint, std::string_view name,
                                           const WholeTensor& tensor, const Box& box) {
  std::vector<TensorPiece> found;
  if (is_empty(box)) return found;
  const std::size_t rank = tensor.sizes.size();
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const ComposedTensor* const chunked = find_chunked(checkpoint, name);
  const std::vector<std::int64_t> origin(rank, 0);
  for (std::size_t i = 0; i < tensor.piece_count; ++i) {
    const std::span<const std::int64_t> offsets =
        chunked == nullptr ? std::span(origin)
                           : std::span(chunked->offsets).subspan(i * rank, rank);
    const std::size_t index = tensor.first_piece + i;
    if (!meets(offsets, state.listed().sizes(index), box)) continue;
    const TensorView view = state.view(index);
    TRY(view.check_no_fault());
    Result<TensorPiece> part = clip(view, offsets, index, box);
    if (!part) {
      part.error().message.insert(0, start_of_error(name));
      return tl::unexpected<Error>(std::move(part.error()));
    }
    found.push_back(std::move(*part));
  }
  return found;
}

Result<TensorSlice> empty_view(DType dtype, std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> dims(sizes.begin(), sizes.end());
  dims.resize(2 * sizes.size(), 1);
  return TensorSlice::of(TensorView(dtype, sizes.size(), dims.data(), nullptr, 0, 0));
}

// Returns how many of `count` elements along a dimension fit `most_bytes` of `nbytes`: at least
// one, and whole blocks along the last dimension.
std::int64_t step_of(DType dtype, std::uint64_t nbytes, std::int64_t count, bool is_last_dim,
                     std::uint64_t most_bytes) {
  const std::int64_t unit = is_last_dim ? std::int64_t{block_of(dtype).elements} : 1;
  const std::uint64_t unit_bytes = nbytes / static_cast<std::uint64_t>(count / unit);
  return unit * static_cast<std::int64_t>(std::max<std::uint64_t>(1, most_bytes / unit_bytes));
}

// Copies row-major elements of a box into a larger one, row by row. Rows are whole blocks.
class Scatter {
 public:
  // `sizes` are those of the box that fills `out`.
  Scatter(std::span<const std::int64_t> sizes, DType dtype, std::span<std::byte> out)
      : strides_(sizes.size(), 1), dtype_(dtype), out_(out) {
    for (std::size_t dim = sizes.size(); dim-- > 1;) strides_[dim - 1] = strides_[dim] * sizes[dim];
  }
  // Returns the place of a part that is contiguous in `out`; nullptr otherwise.
  std::byte* place_of(std::span<const std::int64_t> at, const TensorView& part) const {
    std::size_t dim = 0;
    while (dim < part.rank() && part.shape()[dim] == 1) ++dim;
    for (++dim; dim < part.rank(); ++dim)
      if (strides_[dim - 1] != strides_[dim] * part.shape()[dim]) return nullptr;
    return first(at);
  }
  void put(std::span<const std::int64_t> at, std::span<const std::int64_t> sizes,
           const std::byte* from) const {
    std::vector<std::int64_t> index(at.begin(), at.end());
    const std::size_t last = sizes.size() - 1;
    const std::uint64_t row = bytes_of(dtype_, static_cast<std::uint64_t>(sizes[last]));
    while (true) {
      std::memcpy(first(index), from, row);
      from += row;
      std::size_t dim = last;
      while (dim > 0 && ++index[dim - 1] == at[dim - 1] + sizes[dim - 1]) {
        index[dim - 1] = at[dim - 1];
        --dim;
      }
      if (dim == 0) return;
    }
  }

 private:
  std::byte* first(std::span<const std::int64_t> at) const {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim) offset += at[dim] * strides_[dim];
    return out_.data() + bytes_of(dtype_, static_cast<std::uint64_t>(offset));
  }
  std::vector<std::int64_t> strides_;  // elements
  DType dtype_;
  std::span<std::byte> out_;
};

// Disables read-ahead for the files during a read of parts, since it would read what other ranks
// want. If two parts of a file are read at once, the first to finish enables it for both.
class NoReadAhead {
 public:
  NoReadAhead(const Checkpoint& checkpoint, std::span<const TensorPiece> pieces)
      : sources_(Checkpoint::Access::state(checkpoint).sources) {
    for (const TensorPiece& piece : pieces)
      files_.push_back(checkpoint.tensors()[piece.tensor].source);
    for (const std::size_t file : files_) sources_[file].file.advise_metadata();
  }
  NoReadAhead(const NoReadAhead&) = delete;
  NoReadAhead& operator=(const NoReadAhead&) = delete;
  ~NoReadAhead() {
    for (const std::size_t file : files_) sources_[file].file.advise_mapping();
  }

 private:
  const Sources& sources_;
  std::vector<std::size_t> files_;
};

// Copies at most `most_bytes` at a time if a part is not contiguous in `out`.
class Gatherer {
 public:
  Gatherer(const Checkpoint& checkpoint, Scatter scatter)
      : checkpoint_(checkpoint), scatter_(std::move(scatter)) {}

  Result<void> copy(const TensorView& part, std::vector<std::int64_t> at) {
    if (std::byte* const place = scatter_.place_of(at, part))
      return checkpoint_.gather(part, {place, part.nbytes()});
    if (part.nbytes() <= most_bytes) return copy_some(part, at);
    std::size_t dim = 0;
    while (part.shape()[dim] == 1) ++dim;
    const std::int64_t count = part.shape()[dim];
    const std::int64_t rows =
        step_of(part.dtype(), part.nbytes(), count, dim + 1 == part.rank(), most_bytes);
    const std::int64_t begin = at[dim];
    for (std::int64_t row = 0; row < count; row += rows) {
      TRY_ASSIGN(const TensorSlice some, part.narrow(dim, row, std::min(rows, count - row)));
      at[dim] = begin + row;
      TRY(copy(some, at));
    }
    return {};
  }

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

  Result<void> copy_some(const TensorView& part, std::span<const std::int64_t> at) {
    buffer_.resize(part.nbytes());
    TRY(checkpoint_.gather(part, buffer_));
    scatter_.put(at, part.shape(), buffer_.data());
    return {};
  }

  const Checkpoint& checkpoint_;
  Scatter scatter_;
  std::vector<std::byte> buffer_;
};

std::uint64_t bytes_of(const WholeTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.sizes) count *= static_cast<std::uint64_t>(size);
  return bytes_of(tensor.dtype, count);
}

// Produces a tensor box by box; each box is contiguous in it.
class Producer {
 public:
  Producer(const Checkpoint& checkpoint, std::string_view name, const WholeTensor& tensor,
           const RecordContent::Take& take)
      : checkpoint_(checkpoint), name_(name), tensor_(tensor), take_(take) {}

  // The dimensions of `box` before `dim` have one element.
  Result<void> give(Box box, std::size_t dim) {
    const std::uint64_t nbytes = bytes_of({tensor_.dtype, box.sizes});
    if (nbytes == 0) return {};
    const std::size_t rank = box.sizes.size();
    if (nbytes <= most_bytes || rank > TensorView::max_slice_rank) return give_all(box, nbytes);
    const std::int64_t count = box.sizes[dim];
    const std::int64_t begin = box.offsets[dim];
    const std::int64_t rows = step_of(tensor_.dtype, nbytes, count, dim + 1 == rank, most_bytes);
    for (std::int64_t row = 0; row < count; row += rows) {
      box.offsets[dim] = begin + row;
      box.sizes[dim] = std::min(rows, count - row);
      TRY(give(box, box.sizes[dim] == 1 ? dim + 1 : dim));
    }
    return {};
  }

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{8} << 20;

  Result<void> give_all(const Box& box, std::uint64_t nbytes) {
    buffer_.resize(nbytes);
    TRY(weightmap::gather(checkpoint_, name_, box, buffer_));
    return take_(buffer_);
  }

  const Checkpoint& checkpoint_;
  std::string_view name_;
  const WholeTensor& tensor_;
  const RecordContent::Take& take_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::span<const ComposedTensor> composed_tensors(const Checkpoint& checkpoint) noexcept {
  return Checkpoint::Access::state(checkpoint).content().composed;
}

Result<WholeTensor> whole_tensor(const Checkpoint& checkpoint, std::string_view name) {
  if (const ComposedTensor* const chunked = find_chunked(checkpoint, name))
    return WholeTensor{*chunked->dtype, chunked->sizes, chunked->first_part, chunked->part_count};
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  TRY_ASSIGN(const std::uint32_t index, state.index_of(name));
  const catalog::ListedTensors listed = state.listed();
  const std::span<const std::int64_t> sizes = listed.sizes(index);
  return WholeTensor{listed.dtype(index), {sizes.begin(), sizes.end()}, index, 1};
}

std::vector<std::string_view> whole_names(const Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  auto chunked = composed_tensors(checkpoint).begin();
  const auto end = composed_tensors(checkpoint).end();
  const catalog::ListedTensors listed = Checkpoint::Access::state(checkpoint).listed();
  for (std::size_t i = 0; i < listed.size();) {
    while (chunked != end &&
           (chunked->form != ComposedTensor::Form::chunked || chunked->first_part < i))
      ++chunked;
    const bool is_chunked = chunked != end && chunked->first_part == i;
    names.push_back(is_chunked ? std::string_view(chunked->name) : listed.name(i));
    i += is_chunked ? chunked->part_count : 1;
  }
  return names;
}

Result<RecordContent> content_of(const Checkpoint& checkpoint, std::string_view name) {
  TRY_ASSIGN(const WholeTensor tensor, whole_tensor(checkpoint, name));
  return RecordContent::produced(
      bytes_of(tensor), [&checkpoint, name, tensor](const RecordContent::Take& take) {
        return Producer(checkpoint, name, tensor, take)
            .give({std::vector<std::int64_t>(tensor.sizes.size(), 0), tensor.sizes}, 0);
      });
}

Result<std::vector<TensorPiece>> pieces(const Checkpoint& checkpoint, std::string_view name,
                                        const std::optional<Box>& box) {
  TRY_ASSIGN(const WholeTensor tensor, whole_tensor(checkpoint, name));
  TRY_ASSIGN(const Box part, checked_box(name, tensor, box));
  return pieces_in(checkpoint, name, tensor, part);
}

Result<TensorSlice> view_of(const Checkpoint& checkpoint, std::string_view name, const Box& box) {
  TRY_ASSIGN(const WholeTensor tensor, whole_tensor(checkpoint, name));
  TRY_ASSIGN(const Box part, checked_box(name, tensor, box));
  if (is_empty(part)) return empty_view(tensor.dtype, part.sizes);
  TRY_ASSIGN(const std::vector<TensorPiece> found, pieces_in(checkpoint, name, tensor, part));
  if (found.size() == 1) return found.front().view;
  return failure(ErrorCode::unsupported, "tensor " + bytes::quote(name) + " lies in " +
                                             std::to_string(found.size()) +
                                             " pieces; pieces() gives them, gather() copies them "
                                             "into one");
}

Result<void> gather(const Checkpoint& checkpoint, std::string_view name,
                    const std::optional<Box>& box, std::span<std::byte> out) {
  TRY_ASSIGN(const WholeTensor tensor, whole_tensor(checkpoint, name));
  TRY_ASSIGN(const Box part, checked_box(name, tensor, box));
  const bool is_ordinary = tensor.piece_count == 1 && part.sizes == tensor.sizes;
  if (is_ordinary) return checkpoint.gather(checkpoint.tensors()[tensor.first_piece].view, out);
  TRY_ASSIGN(const std::vector<TensorPiece> found, pieces_in(checkpoint, name, tensor, part));
  std::uint64_t nbytes = 0;
  for (const TensorPiece& piece : found) nbytes += piece.view.nbytes();
  if (out.size() != nbytes)
    return failure(ErrorCode::invalid_argument,
                   start_of_error(name) + "the buffer has " + std::to_string(out.size()) +
                       " bytes, the part needs " + std::to_string(nbytes));
  if (found.empty()) return {};
  std::optional<NoReadAhead> part_only;
  if (part.sizes != tensor.sizes) part_only.emplace(checkpoint, found);
  if (found.size() == 1) return checkpoint.gather(found.front().view, out);
  Gatherer gatherer(checkpoint, Scatter(part.sizes, tensor.dtype, out));
  for (const TensorPiece& piece : found) {
    std::vector<std::int64_t> at = piece.offsets;
    for (std::size_t dim = 0; dim < at.size(); ++dim) at[dim] -= part.offsets[dim];
    TRY(gatherer.copy(piece.view, std::move(at)));
  }
  return {};
}

}  // namespace weightmap
