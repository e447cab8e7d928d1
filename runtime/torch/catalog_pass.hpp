// The short way from a value tree to a catalog: the walk notes runs of items, then one pass
// decodes, places and enters each tensor of them.
//
// It makes what read_tensors(), zip::locate_storages() and make_catalog() make, for what torch.save
// writes: storages named 0, 1, 2, ... as the pickle refers to them, placed by the padding rule.
// Whatever is otherwise, or wrong, is not for it to judge: it gives up, and the long way goes from
// the start.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/catalog/builder.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/format/tensor_nodes.hpp"
#include "runtime/torch/entry_maker.hpp"
#include "runtime/torch/run_storages.hpp"
#include "runtime/torch/tree_walk.hpp"
#include "runtime/zip/storage_run.hpp"

namespace weightmap::torch {

class CatalogPass final : TreeWalk {
 public:
  // Fewer packed calls than these are not worth it.
  static constexpr std::uint64_t least_packed = 64;

  // `memory` holds what lives as long as this object, and the catalog, and must outlive both.
  CatalogPass(const value::Tree& tree, const ReadLimits& limits, const zip::StorageRun& storages,
              std::pmr::memory_resource& memory)
      : TreeWalk(tree, limits, TensorTable(memory, 0, 0), 0),
        storages_(storages, memory),
        memory_(memory) {}

  // Walks through the tree. False: the long way has to say what is there.
  bool survey();
  // Then, once: the catalog, and the nodes of its tensors. nullopt: as above. Throws
  // std::bad_alloc.
  std::optional<catalog::Catalog> make(bool foreign_byte_order, format::TensorNodes& nodes);

  std::uint64_t cache_hits() const noexcept {
    return table_.storages.cache_hits() + storages_.cache_hits();
  }
  using TreeWalk::next_mark;

 private:
  using Run = format::TensorNodes::Run;

  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype,
                               std::uint64_t) override {
    return storages_.intern(key, numel, dtype);
  }
  bool found_packed(const value::PackedCall&, const Child& child, std::uint32_t path) override {
    return add_single(child, path);
  }
  bool found_call(TensorCall& call, const value::Cell& object) override;
  bool found_object(std::uint32_t, const Child& child, std::uint32_t path) override {
    return add_single(child, path);
  }
  bool found_composed(const TensorCall&, const Child&, std::uint32_t) override { return false; }
  bool found_array(const NumpyArray&, const Child&, std::uint32_t) override { return false; }
  bool found_storage(std::string_view, std::int64_t, DType) override { return false; }
  bool is_tensor(const value::PackedCall&) override { return true; }  // or make() gives up
  bool found_items(Frame& frame) override;
  bool add_single(const Child& child, std::uint32_t path);

  // What packed calls of one shape have in common.
  struct Alike {
    const value::PackedShape* shape = nullptr;
    catalog::Entry entry;
    std::uint64_t storage_bytes;
    const HeaderMeaning* meaning;
  };

  catalog::Counts counts() const;
  bool add_run(const Run& run);
  bool add_packed(const value::PackedCall& call, std::uint32_t path, const value::Cell& key);
  bool add_object(const value::Cell& object, std::uint32_t path, const value::Cell& key);
  bool learn(const value::PackedCall& call, Alike& alike);
  [[gnu::always_inline]] bool place(const value::PackedCall& call, const Alike& alike,
                                    std::uint32_t& storage);
  std::optional<catalog::Entry> entry_of(const TensorSpec& spec);
  bool add_locations();
  void note_tensor(std::uint32_t position, const std::int64_t* dims, std::size_t rank) noexcept;
  void keep_nodes(format::TensorNodes& nodes);

  // A tensor that is an object: what it says is decoded when its turn comes.
  struct Deferred {
    TensorCall call;
    std::optional<TensorSpec> spec;
  };

  RunStorages storages_;
  std::pmr::memory_resource& memory_;
  std::vector<Run> runs_;
  std::deque<std::array<value::Cell, 2>> single_items_;
  std::vector<Deferred> deferred_;
  std::optional<catalog::CatalogBuilder> builder_;
  std::optional<EntryMaker> entries_;
  std::array<Alike, value::PackedShape::slots> alike_;
  std::uint32_t locations_added_ = 0;
  std::uint64_t location_bytes_ = 0;
  std::uint64_t next_position_ = 0;  // that a node must have at least for the order to be kept
  bool nodes_ascend_ = true;
};

}  // namespace weightmap::torch
