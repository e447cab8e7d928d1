// Builds the calls by which torch.save describes tensors (the inverse functions are in pytorch's
// torch/_utils.py and serialization.py).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/value/builder.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

class TensorValues {
 public:
  // `cells` is the builder inside `build`.
  TensorValues(ValueBuilder& build, value::Builder& cells) : build_(build), cells_(cells) {}

  // Returns ("storage", type, key, location, numel) as a persistent id.
  Value storage(const StorageTexts& texts, std::uint64_t nbytes, DType dtype);
  // Returns "storage", one shared text.
  Value tag();
  // Returns one text per location, which all its storages share.
  Value location(std::string_view name);
  // Returns a tensor over such a storage.
  Value tensor(const StorageTexts& texts, std::uint64_t nbytes, const TensorSpec& spec);
  Value parameter(const Value& tensor, bool requires_grad);
  Value ordered_dict(std::span<const Value> items, const std::optional<Value>& state);
  Value size(std::span<const std::int64_t> sizes);

 private:
  // A value that is made at its first use.
  using Once = std::optional<Value>;
  Value global(Once& once, std::string_view module, std::string_view name);
  Value integers(std::span<const std::int64_t> values);
  Value storage_type(DType dtype);
  Value rebuild(bool is_typed);
  Value dtype_name(DType dtype);
  // Returns nullptr beyond the builder's limits.
  const value::PackedHeader* header(const StorageTexts& texts, DType dtype);
  Value tensor_of_pieces(const Value& storage, const TensorSpec& spec);

  ValueBuilder& build_;
  value::Builder& cells_;
  Once tag_, untyped_, rebuild_v2_, rebuild_v3_, rebuild_parameter_, ordered_dict_, size_;
  std::array<Once, dtype_count> storage_types_;
  std::array<Once, dtype_count> dtypes_;
  std::map<std::string, Value, std::less<>> locations_;
  // Headers by the cells of tag and location and by the dtype, and the last one of them.
  using HeaderKey = std::array<std::uint64_t, 5>;
  std::map<HeaderKey, const value::PackedHeader*> headers_;
  HeaderKey last_key_{};
  const value::PackedHeader* last_header_ = nullptr;
  std::vector<Value> scratch_;
};

}  // namespace weightmap
