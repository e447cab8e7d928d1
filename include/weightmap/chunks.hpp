// Reads parts of tensors that are stored in several chunks, as torch.distributed.checkpoint writes
// them: without a copy where one chunk has the part, otherwise as pieces, or copied into one.
//
//   // Rank r of n reads its rows, independent of the chunks in the file:
//   const weightmap::Box rows{{r * 512, 0}, {512, 4096}};
//   auto view = weightmap::view_of(*checkpoint, "layers.0.wq.weight", rows);  // zero-copy
//   if (!view) ok = weightmap::gather(*checkpoint, "layers.0.wq.weight", rows, memory);
//
// All functions also accept ordinary tensors, which are one chunk. gather() reads only the pages of
// the part, without read-ahead; rows within 16 KiB of one another are read together with the gap
// between them. Touching a view faults pages in with the system's read-ahead. All functions may be
// called from any thread; their results borrow from the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;

// The part that begins at `offsets` and has `sizes` elements along each dimension.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
};

// The facts about a tensor, in however many chunks it lies, without reading its bytes.
struct WholeTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> sizes;
  std::size_t first_piece = 0;  // position in Checkpoint::tensors()
  std::size_t piece_count = 0;  // 1: an ordinary tensor
};

// Returns the name of the tensor in several chunks that this node of Checkpoint::values()
// describes; nullopt for any other value.
WEIGHTMAP_API std::optional<std::string_view> chunked_name(const Checkpoint& checkpoint,
                                                           const Value& value) noexcept;

// Returns the names of all tensors in the order of Checkpoint::tensors(); a tensor of several
// pieces appears once, in their place. The names borrow from the checkpoint.
WEIGHTMAP_API std::vector<std::string_view> whole_names(const Checkpoint& checkpoint);

struct TensorPiece {
  std::vector<std::int64_t> offsets;  // of its first element in the whole tensor
  TensorSlice view;
  std::size_t tensor;  // position of its stored tensor in Checkpoint::tensors()
};

// Fails with not_found if there is no tensor of this name, with invalid_argument if there are two.
WEIGHTMAP_API Result<WholeTensor> whole_tensor(const Checkpoint& checkpoint, std::string_view name);

// Returns the pieces of a part of a tensor (of the whole tensor without a box), clipped to it, in
// row-major order of their offsets. Together they are exactly the part; an empty part has none.
// Fails as whole_tensor() does, and with invalid_argument for a box that leaves the tensor, or a
// rank above TensorView::max_slice_rank.
WEIGHTMAP_API Result<std::vector<TensorPiece>> pieces(const Checkpoint& checkpoint,
                                                      std::string_view name,
                                                      const std::optional<Box>& box = {});

// Returns the part as one view. Fails as pieces() does, with unsupported if it lies in several
// pieces.
WEIGHTMAP_API Result<TensorSlice> view_of(const Checkpoint& checkpoint, std::string_view name,
                                          const Box& box);

// Copies the part into `out`, row-major, without gaps and in this machine's byte order, through
// reads of the files, as Checkpoint::gather() does: it maps no pages, and a truncated file raises
// no signal. `out` must have exactly the size of the part. Fails as pieces() and
// Checkpoint::gather() do.
WEIGHTMAP_API Result<void> gather(const Checkpoint& checkpoint, std::string_view name,
                                  const std::optional<Box>& box, std::span<std::byte> out);

// Returns all elements, as gather() does, as content for a writer: parts of some MiB, each read
// when it is written. Borrows the checkpoint and the name. Fails as whole_tensor() does.
WEIGHTMAP_API Result<RecordContent> content_of(const Checkpoint& checkpoint, std::string_view name);

}  // namespace weightmap
