// Decodes one call of a rebuild function, with any wrappers around it, into a tensor.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/legacy_views.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "runtime/formats/torch/walk_frame.hpp"
#include "runtime/formats/torch/work_budget.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Facts that all calls with one PackedHeader share, computed once.
struct HeaderMeaning {
  const value::PackedHeader* header;
  bool is_tensor;
  DType dtype;
  DType storage_dtype;
  std::uint8_t storage_element_size;
  std::uint16_t location;
};

// The call inside wrappers such as _rebuild_parameter, and the facts from the wrappers.
struct TensorCall {
  Rebuild function = Rebuild::none;
  const value::PackedCall* packed = nullptr;  // then `arguments` is not used
  Value arguments{nullptr, {}};
  std::uint32_t position = 0;
  bool is_parameter = false;
  std::optional<bool> requires_grad;
  std::optional<DType> converted_to;  // for device tensors; elements in a view are not converted
  std::vector<Attachment> attachments;
  // What a state sets as the data of the parameter, which decode() compares with what it is.
  std::optional<value::Cell> data;
};

// Adds storages, locations and sizes to a table; the caller adds the tensors.
class TensorDecoder {
 public:
  // All references must outlive the decoder. `pickle_offset` is the pickle's offset in the file,
  // for error messages. `views` belongs to a legacy stream and is nullptr otherwise.
  TensorDecoder(const value::Tree& tree, std::uint64_t pickle_offset, LegacyViews* views,
                const Limits& limits, TensorTable& table, WorkBudget& budget)
      : tree_(tree),
        pickle_offset_(pickle_offset),
        views_(views),
        rank_limit_(limits.rank),
        table_(table),
        budget_(budget) {}

  // Returns false if the object is not a dense tensor with a known rebuild function; call.function
  // then tells whether composed.hpp describes it.
  Result<bool> unwrap(const Value& object, TensorCall& call);
  Result<TensorSpec> decode(const TensorCall& call);

  Result<const HeaderMeaning*> meaning_of(const value::PackedCall& call);
  // Fills in a tensor without its storage. `meaning` is the call's, and states that it is a tensor.
  // Returns false after setting error(), which is cheaper to return 100,000 times than a Result.
  bool describe_packed(const value::PackedCall& call, const HeaderMeaning& meaning,
                       TensorSpec& spec) {
    const value::PackedShape& shape = *call.shape;
    if (shape.size_count != shape.stride_count || shape.storage_offset < 0)
      return refuse_dims(call);
    spec.dims = shape.dims;
    spec.storage_offset = shape.storage_offset;
    spec.position = call.position;
    spec.location = meaning.location;
    spec.dtype = meaning.dtype;
    spec.rank = shape.size_count;
    spec.flags = call.requires_grad ? TensorSpec::requires_grad : 0;
    return true;
  }
  // Finds the tensor's storage; returns like describe_packed().
  bool place_packed(const value::PackedCall& call, const HeaderMeaning& meaning,
                    std::uint32_t& storage) {
    const std::string_view key = tree_.text(call.key_position, call.key_length);
    if (!in_constants_)
      if (const auto next = table_.storages.intern_next(
              key, call.shape->numel, meaning.storage_dtype, meaning.storage_element_size)) {
        storage = *next;
        return true;
      }
    return intern_packed(call, meaning, storage);
  }
  bool intern_packed(const value::PackedCall& call, const HeaderMeaning& meaning,
                     std::uint32_t& storage);
  const Error& error() const noexcept { return error_; }

  // True if a persistent id is a storage's: five fields, or six in a legacy stream.
  bool is_storage_id(const Value& id) const {
    return id.kind() == Value::Kind::tuple && id.size() == (views_ == nullptr ? 5 : 6) &&
           id[0].string() == "storage";
  }

  // Later keys belong to the constants of a TorchScript archive, which have their own numbers.
  void begin_constants() noexcept { in_constants_ = true; }

  // See StorageTable::intern().
  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype,
                               std::uint32_t position);

  // Returns the number of a location in the table. Fails with limit_exceeded beyond 1024.
  Result<std::uint16_t> location_number(std::string_view location);

 private:
  using Status = Result<void>;

  Result<bool> unwrap_all(const Value& object, TensorCall& call);
  Result<bool> unwrap_once(TensorCall& call);
  static bool is_legacy_tensor(const Value& object, TensorCall& call);
  Status attach_state(TensorCall& call, std::size_t argument);
  Status check_state(const Value& state, TensorCall& call);
  bool is_repeated(const Value& property, const Value& item, TensorCall& call) const;
  [[gnu::cold]] tl::unexpected<Error> sets_property(std::string_view name,
                                                    std::uint32_t position) const;
  Result<TensorSpec> decode_call(const TensorCall& call);
  Status check_data(const TensorCall& call, const TensorSpec& spec);
  Result<HeaderMeaning> interpret(const value::PackedCall& call);
  [[gnu::cold]] bool refuse_dims(const value::PackedCall& call);
  Status read_storage(const Value& id, std::uint32_t position, TensorSpec& spec,
                      std::optional<StorageType>& type, LegacyViews::View& view);
  Status read_dims(const Value& sizes, const Value& strides, std::uint32_t position,
                   TensorSpec& spec);
  // A name of torch that is no dtype known here may be one of a newer torch.
  Result<DType> dtype_argument(const Value& dtype, std::uint32_t position) const;
  Status read_flags(const TensorCall& call, TensorSpec& spec);
  Status read_metadata(const Value& metadata, std::uint32_t position, TensorSpec& spec);

  [[gnu::cold]] tl::unexpected<Error> corrupt(std::uint32_t position, std::string message) const {
    return failure(ErrorCode::corrupt, std::move(message), pickle_offset_ + position);
  }
  Value value(const value::Cell& cell) const noexcept { return {&tree_, cell}; }

  const value::Tree& tree_;
  std::uint64_t pickle_offset_;
  LegacyViews* views_;
  std::uint32_t rank_limit_;
  TensorTable& table_;
  WorkBudget& budget_;
  std::unordered_map<std::string_view, std::uint16_t> location_numbers_;
  std::deque<HeaderMeaning> meanings_;  // a handful; deque keeps their addresses stable
  bool in_constants_ = false;
  Error error_;
};

}  // namespace weightmap::torch
