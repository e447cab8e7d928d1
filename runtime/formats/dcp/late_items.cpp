#include "runtime/formats/dcp/late_items.hpp"

#include <memory_resource>
#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap::dcp {
namespace {

// May be used by any thread.
class LateItems {
 public:
  LateItems(std::shared_ptr<const Metadata> metadata, std::span<const Whole> tensors,
            std::span<const DataFile> files, const OpenOptions& options, bool is_foreign)
      : metadata_(std::move(metadata)),
        files_(files.begin(), files.end()),
        options_(for_one_item(options)),
        is_foreign_(is_foreign) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      for (const PlacedChunk& chunk : tensors[i].chunks)
        pieces_.push_back({&metadata_->tensors[i], &metadata_->tensors[i].chunks[chunk.given]});
  }

  Result<catalog::Catalog> read(std::size_t index) {
    ItemRead item{pieces_[index].tensor, pieces_[index].chunk, {}};
    OpenStats not_of_the_open;
    TRY(read_item(item, files_, options_, not_of_the_open, proven_));
    TRY(expect_order({&item, 1}, files_, is_foreign_));
    Whole tensor = without_chunks(*item.tensor);
    tensor.path.reset();  // which the list of all has
    tensor.chunks.push_back(std::move(item.placed));
    return place_piece(tensor, *std::pmr::new_delete_resource());
  }

  Result<catalog::Catalog> read_all() const {
    std::vector<ItemRead> reads = reads_of(*metadata_);
    OpenStats not_of_the_open;
    TRY(read_items(reads, files_, options_, not_of_the_open));
    TRY(expect_order(reads, files_, is_foreign_));
    std::vector<Whole> tensors = wholes(*metadata_, reads);
    format::Parsed parsed(*std::pmr::new_delete_resource());
    TRY(assemble(tensors, metadata_->pickle_bytes, options_, *std::pmr::new_delete_resource(),
                 parsed));
    return std::move(parsed.catalog);
  }

  static Whole without_chunks(const Tensor& tensor) {
    return {tensor.name,
            tensor.path,
            tensor.dtype,
            tensor.requires_grad,
            {tensor.sizes.begin(), tensor.sizes.end()},
            {}};
  }

 private:
  struct Piece {
    const Tensor* tensor;
    const Chunk* chunk;
  };

  const std::shared_ptr<const Metadata> metadata_;
  const std::vector<DataFile> files_;
  const OpenOptions options_;
  const bool is_foreign_;
  std::vector<Piece> pieces_;  // by their numbers in the catalog
  ProvenItems proven_;
};

}  // namespace

std::vector<ItemRead> reads_of(const Metadata& metadata) {
  std::vector<ItemRead> reads;
  for (const Tensor& tensor : metadata.tensors)
    for (const Chunk& chunk : tensor.chunks) reads.push_back({&tensor, &chunk, {}});
  return reads;
}

std::vector<Whole> wholes(const Metadata& metadata, std::span<ItemRead> reads) {
  std::vector<Whole> all;
  all.reserve(metadata.tensors.size());
  for (const Tensor& tensor : metadata.tensors) {
    all.push_back(LateItems::without_chunks(tensor));
    all.back().chunks.reserve(tensor.chunks.size());
  }
  for (ItemRead& read : reads) {
    read.placed.given = static_cast<std::size_t>(read.chunk - read.tensor->chunks.data());
    all[static_cast<std::size_t>(read.tensor - metadata.tensors.data())].chunks.push_back(
        std::move(read.placed));
  }
  return all;
}

format::LatePlaces late_places(std::shared_ptr<const Metadata> metadata,
                               std::span<const Whole> tensors, std::span<const DataFile> files,
                               const OpenOptions& options, bool is_foreign) {
  const auto items =
      std::make_shared<LateItems>(std::move(metadata), tensors, files, options, is_foreign);
  return {[items](std::size_t index) { return items->read(index); },
          [items] { return items->read_all(); }};
}

}  // namespace weightmap::dcp
