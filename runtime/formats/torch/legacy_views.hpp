// Views of storages that have keys of their own. In a legacy stream, the sixth field of a
// persistent id is a view, (key, offset, size) in elements, or None. torch before 0.4 wrote views
// for slices of storages.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "runtime/formats/torch/storage_table.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

class LegacyViews {
 public:
  // In elements of the storage's type.
  struct View {
    std::uint32_t storage;  // number in the StorageTable
    std::int64_t offset;
    std::int64_t size;
  };

  // Reads the view field of an id for a storage of `numel` elements. Fails with corrupt if the view
  // leaves the storage, or if an earlier view of this key differs. Errors refer to `file_offset`.
  Result<View> view(const Value& field, std::uint32_t storage, std::int64_t numel,
                    std::uint64_t file_offset);

  // Converts the tensor's offset in a view to an offset in its storage. Fails with corrupt if the
  // tensor leaves the view.
  static Result<void> place(const View& view, TensorSpec& spec, std::uint64_t file_offset);

  // Fails with corrupt if a storage has the key of a view, since torch then takes the first.
  Result<void> check_keys(const StorageTable& storages, std::uint64_t file_offset) const;

 private:
  std::map<std::string_view, View> views_;
};

}  // namespace weightmap::torch
