// Parts of tensors that lie in several chunks, as torch.distributed.checkpoint writes them: without
// a copy where one chunk has the part, else as the pieces that it lies in, or copied into one.
//
//   // Rank r of n wants rows of a tensor, whatever it was saved by:
//   const weightmap::Box rows{{r * 512, 0}, {512, 4096}};
//   auto view = weightmap::view_of(*checkpoint, "layers.0.wq.weight", rows);  // zero-copy
//   if (!view) ok = weightmap::gather(*checkpoint, "layers.0.wq.weight", rows, memory);
//
// All of these take ordinary tensors, too, which are one chunk. gather() reads the bytes of the
// part only, in whole pages, and nothing ahead of them; rows that lie within 16 KiB of one another
// come with what is between. A view brings in what the system's read-ahead does around what is
// touched. May be called from any thread; what they give borrows from the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

class Checkpoint;

// From `offsets` on, as many elements along each dimension as `sizes` says.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
};

// What is known of a tensor before anything of it is read, in however many chunks it lies.
struct WholeTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> sizes;
  std::size_t first_piece = 0;  // position in Checkpoint::tensors()
  std::size_t piece_count = 0;  // 1: an ordinary tensor
};

// All tensors in the order of Checkpoint::tensors(), each tensor of several pieces once in the
// place of these. The names borrow from the checkpoint.
WEIGHTMAP_API std::vector<std::string_view> whole_names(const Checkpoint& checkpoint);

struct TensorPiece {
  std::vector<std::int64_t> offsets;  // of its first element, in the tensor
  TensorSlice view;
  std::size_t tensor;  // what it is a part of: position in Checkpoint::tensors()
};

// Fails with not_found if there is no tensor of this name, with invalid_argument if there are two.
WEIGHTMAP_API Result<WholeTensor> whole_tensor(const Checkpoint& checkpoint, std::string_view name);

// The pieces that a part of a tensor lies in, clipped to it, in row-major order of their offsets;
// without a box, of all of it. Together they are the part; none for an empty one. Fails as
// whole_tensor() does, and with invalid_argument for a box that leaves the tensor, or a rank above
// TensorView::max_slice_rank.
WEIGHTMAP_API Result<std::vector<TensorPiece>> pieces(const Checkpoint& checkpoint,
                                                      std::string_view name,
                                                      const std::optional<Box>& box = {});

// The part as one view. Fails as pieces() does, and with unsupported if it lies in several pieces.
WEIGHTMAP_API Result<TensorSlice> view_of(const Checkpoint& checkpoint, std::string_view name,
                                          const Box& box);

// Copies the part into `out`, row-major, without gaps and in this machine's byte order, through
// reads of the files, as Checkpoint::gather() does: nothing is mapped in, and no signal is raised
// where a file was truncated. `out` must have just the bytes of the part. Fails as pieces() and
// Checkpoint::gather() do.
WEIGHTMAP_API Result<void> gather(const Checkpoint& checkpoint, std::string_view name,
                                  const std::optional<Box>& box, std::span<std::byte> out);

// All elements as gather() gives them, for a file that is being written: in parts of some MiB, each
// of which is read as it is written. Borrows the checkpoint and the name. Fails as whole_tensor()
// does.
WEIGHTMAP_API Result<RecordContent> content_of(const Checkpoint& checkpoint, std::string_view name);

}  // namespace weightmap
