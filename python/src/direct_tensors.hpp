// Calls of torch's rebuild functions that need not be made, since torch_door.hpp has what they
// would answer: tensors that are the first to use their storage, and that reach from its first
// element to its last one.
//
// The machine (evaluator.hpp) says what may be made so, by its attribute `direct`: None, or an
// object with
//
//   rebuild, rebuild_untyped    torch's _rebuild_tensor_v2 and _rebuild_tensor_v3
//   storage_types               {type of storage: name of the dtype}, for the first function
//   untyped_storage, dtypes     the type of storage and {dtype: its name}, for the second one
//   adopt(key, type, tensor)    tells the machine that persistent() is to answer, for this key, the
//                               storage of this tensor, which the pickle calls one of that type
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "python/src/holder.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {

class DirectTensors {
 public:
  // Returns the object that the machine has for a global.
  using Find = std::function<nanobind::object(const Value& global)>;

  // Precondition: `settings` is what the machine has as `direct`, and torch's door is open.
  DirectTensors(const Owner& owner, nanobind::handle settings, Find find);

  // The tensor that this call would answer, but for its backward hooks, which are its argument
  // `hooks_argument`. Invalid if the call has to be made.
  nanobind::object make(const Value& call);
  static constexpr std::size_t hooks_argument = 5;

  // Returns true for a call of torch's _rebuild_parameter as torch.save writes it: with a possible
  // tensor, a bool, and empty backward hooks.
  static bool is_parameter(const Value& call);

  // The machine is about to be asked for the storage of this persistent id.
  void before_storage(const Value& id);

 private:
  using Names = std::vector<std::pair<nanobind::object, DType>>;
  struct Dims {
    std::array<std::int64_t, 2 * TensorView::max_slice_rank> values;
    std::size_t rank;
    std::span<const std::int64_t> shape() const { return {values.data(), rank}; }
    std::span<const std::int64_t> strides() const { return {values.data() + rank, rank}; }
  };
  struct User {
    nanobind::object tensor;  // None if torch's functions use the storage
    nanobind::object type;    // of the storage
  };

  static Names read_names(nanobind::handle dict);
  static bool read_dims(const Value& sizes, const Value& strides, Dims& dims);
  std::optional<DType> dtype_of(const Value& call, const Value& id, nanobind::object& type) const;
  std::optional<std::size_t> storage_index(std::string_view key);

  Owner owner_;
  Find find_;
  nanobind::object rebuild_, rebuild_untyped_, untyped_storage_, adopt_;
  Names storage_types_, dtypes_;
  std::vector<User> users_;       // by storage: who used it first; nobody yet if invalid
  std::size_t next_storage_ = 0;  // what is likely to be asked for next
};

}  // namespace weightmap::python
