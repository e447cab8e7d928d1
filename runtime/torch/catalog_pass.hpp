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
#include "runtime/torch/tree_walk.hpp"
#include "runtime/zip/storage_run.hpp"

namespace weightmap::torch {

class CatalogPass final : TreeWalk {
 public:
  // Fewer packed calls than these are not worth it.
  static constexpr std::uint64_t least_packed = 64;

  // `tables` holds what lives as long as this object.
  CatalogPass(const value::Tree& tree, const ReadLimits& limits, const zip::StorageRun& storages,
              std::pmr::memory_resource& tables)
      : TreeWalk(tree, limits, TensorTable(tables, 0, storages.count()), 0), storages_(storages) {}

  // Walks through the tree. False: the long way has to say what is there.
  bool survey();
  // Then: the catalog, and the nodes of its tensors. nullopt: as above. Throws std::bad_alloc;
  // `memory` must outlive the catalog.
  std::optional<catalog::Catalog> make(bool foreign_byte_order, std::pmr::memory_resource& memory,
                                       format::TensorNodes& nodes);

  std::uint64_t cache_hits() const noexcept { return table_.storages.cache_hits(); }
  using TreeWalk::next_mark;

 private:
  using Run = format::TensorNodes::Run;

  bool found_packed(const value::PackedCall&, const Child& child, std::uint32_t path) override {
    return add_single(child, path);
  }
  bool found_call(TensorCall& call, const value::Cell& object) override;
  bool found_object(std::uint32_t, const Child& child, std::uint32_t path) override {
    return add_single(child, path);
  }
  bool found_storage(std::string_view, std::int64_t, DType) override { return false; }
  bool is_tensor(const value::PackedCall&) override { return true; }  // or make() gives up
  bool found_items(Frame& frame) override;
  bool add_single(const Child& child, std::uint32_t path);

  catalog::Counts counts() const;
  bool decode(const value::Cell& node, TensorSpec& spec);
  bool decode_object(const value::Cell& node, TensorSpec& spec);
  bool add_storage(catalog::CatalogBuilder& builder);
  bool add_locations(catalog::CatalogBuilder& builder);
  bool add_run(const Run& run, EntryMaker& entries, catalog::CatalogBuilder& builder);
  void keep_nodes(format::TensorNodes& nodes);

  // A tensor that is an object: what it says is decoded when its turn comes.
  struct Deferred {
    TensorCall call;
    std::optional<TensorSpec> spec;
  };

  const zip::StorageRun& storages_;
  std::vector<Run> runs_;
  std::deque<std::array<value::Cell, 2>> single_items_;
  std::vector<Deferred> deferred_;
  const HeaderMeaning* meaning_ = nullptr;  // of the last packed call
  std::uint32_t storages_added_ = 0;
  std::uint32_t locations_added_ = 0;
  std::uint64_t location_bytes_ = 0;
  std::uint64_t next_position_ = 0;  // that a node must have at least for the order to be kept
  bool nodes_ascend_ = true;
};

}  // namespace weightmap::torch
