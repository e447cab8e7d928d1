// Reads the items of .distcp files with tensors: each is an archive of torch.save with one tensor.
// Its head and its tail are read and proven like any archive's, since only they have the place of
// the bytes and the strides: .metadata has the shape only, and transposed tensors are stored as
// they were.
//
// Items lie back to back, so one read covers the tail of one and the head of the next, where all
// are read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/formats/dcp/assemble.hpp"
#include "runtime/formats/dcp/item_pattern.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// A chunk to be read, and the result.
struct ItemRead {
  const Tensor* tensor;
  const Chunk* chunk;
  PlacedChunk placed;
};

// One of Metadata::files.
struct DataFile {
  const bytes::ByteSource* file;
  std::string_view shown_name;  // for errors
  std::uint64_t base;           // in the address space of all files
  std::uint32_t number;         // among the files of the checkpoint
};

struct ProvenItem;

// Items that were parsed, for those that follow: another of the same layout is proven by
// comparison. May be used by any thread; no lock is held, which a fork could leave locked.
class ProvenItems {
 public:
  ProvenItems() = default;
  ProvenItems(const ProvenItems&) = delete;
  ~ProvenItems();

  // Returns an item that one with these ends is like, for that chunk; nullptr if there is none.
  const ProvenItem* find(const Chunk& chunk, const ItemEnds& ends) const noexcept;
  // Keeps the item, if it has a pattern and there is room.
  void keep(const Chunk& chunk, std::unique_ptr<const ProvenItem> item) noexcept;

 private:
  static constexpr std::size_t slots = 1021;
  static constexpr std::size_t most_probes = 4;

  std::array<std::atomic<const ProvenItem*>, slots> items_{};  // owned; each is set once
};

// Reads the items in a few threads. Sorts them by their places. Fails with corrupt for an item that
// contradicts the metadata. Errors name the tensor, the chunk and the file.
Result<void> read_items(std::span<ItemRead> items, std::span<const DataFile> files,
                        const OpenOptions& options, OpenStats& stats);

// With the limits that hold for each item.
OpenOptions for_one_item(OpenOptions options);

// Reads one item, by options that for_one_item() gave, and fails likewise.
Result<void> read_item(ItemRead& item, std::span<const DataFile> files, const OpenOptions& options,
                       OpenStats& stats, ProvenItems& proven);

// Whether the elements of the first of some items that were read and tell it are in the other byte
// order: those of one byte have none. None of them tells: no.
bool has_foreign_order(std::span<const ItemRead> items);
// The same of items that were not read, of which it reads as many as it takes.
bool find_foreign_order(std::span<const ItemRead> items, std::span<const DataFile> files,
                        const OpenOptions& options, OpenStats& stats);
// Fails with unsupported if elements of an item that was read are in another order: the facts of a
// checkpoint name one.
Result<void> expect_order(std::span<const ItemRead> items, std::span<const DataFile> files,
                          bool is_foreign);

// Fills in what the metadata says, in place of a read: no place, and row-major strides. Fails as
// read_items() does for an item that does not lie in its file.
Result<void> expect_item(ItemRead& item, std::span<const DataFile> files);

}  // namespace weightmap::dcp
