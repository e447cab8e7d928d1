// The walk through a value tree to all that is a tensor, and under which names.
//
// Unknown globals are opaque nodes that are looked into, so that a training checkpoint or a whole
// pickled module still lists its tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/torch/composed.hpp"
#include "runtime/torch/numpy_array.hpp"
#include "runtime/torch/script_classes.hpp"
#include "runtime/torch/tensor_decoder.hpp"
#include "runtime/torch/tensor_table.hpp"
#include "runtime/torch/walk_frame.hpp"
#include "runtime/torch/work_budget.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

struct ReadLimits {
  std::uint64_t file_offset;  // of the pickle, for error messages
  Limits limits;
  // Of a TorchScript archive, whose tree ScriptPickle made; borrowed. nullptr: a file of
  // torch.save.
  const ScriptClasses* script = nullptr;
  // The pickle is mapped as it stands, so arrays in it can be tensors.
  bool has_arrays = false;
  LegacyViews* views = nullptr;  // of a legacy stream, to be filled in
};

class TreeWalk {
 public:
  // Marks in the tree below `first_mark` count for nothing. `memory` must outlive the table.
  TreeWalk(const value::Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory,
           std::uint32_t first_mark);
  TreeWalk(const TreeWalk&) = delete;
  TreeWalk& operator=(const TreeWalk&) = delete;

  Result<TensorTable> run() &&;

 private:
  // These answer false after setting error_, which is cheaper to return 100,000 times than a
  // Result.
  bool walk();
  bool walk_from(const Child& child, std::uint32_t path);
  bool walk_script();
  bool unwrap_typed(Child& child);
  bool visit(Child child, std::uint32_t path);
  bool visit_packed(const value::PackedCall& call, const Child& child, std::uint32_t path);
  bool visit_object(const Child& child, std::uint32_t path);
  bool visit_composed(const TensorCall& call, const Child& child, std::uint32_t path);
  bool visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
  bool enter_call(const Child& child, std::uint32_t path);
  bool enter(const Child& child, std::uint32_t path);
  bool check_state(const Value& object);
  bool leave();
  bool check_depth();
  std::uint32_t arguments_limit(const Value& container);
  std::uint32_t child_path(const Child& child, std::uint32_t parent);
  // Refuses a container of the walk whose items hold a key twice, but for two tensors under texts
  // or integers: those have one name, which the catalog notices.
  bool check_keys(const Value& container);
  bool is_tensor_cell(const value::Cell& cell);
  // TensorSpec flags: what the class of the object that holds this child says that it is.
  std::uint8_t role_of(const Child& child) const;

  // What is done with tensors (read_tensors.cpp). An object that is a tensor is decoded where it is
  // first met; then, and whenever it is met again, it is added at that place.
  bool decode(const TensorCall& call, const value::Cell& object);
  bool add_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  // A call that makes more than a dense tensor, wherever it is met; its parts come next.
  bool add_composed(const TensorCall& call, const Child& child, std::uint32_t path);
  // Its parts begin with tensor `first_part`.
  bool add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
                    std::uint32_t path, std::uint32_t position);
  // An array of numpy whose elements stand in the pickle, wherever it is met.
  bool add_array(const NumpyArray& array, const Child& child, std::uint32_t path);
  bool add(TensorSpec spec, const Child& child, std::uint32_t path);
  // Counts a tensor at this place into the table's sums.
  bool count(const Child& child, std::uint32_t path, std::uint32_t position);
  bool check_memory(std::uint64_t more, std::uint32_t position);

  // Notes that what was found is no tensor with a name of its own.
  void note_other_item() noexcept {
    if (!frames_.empty()) frames_.back().note_other_item();
  }
  // See WorkBudget.
  bool spend(std::uint64_t work) { return budget_.spend(work) || fail(budget_.exhausted()); }
  [[gnu::cold]] bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  [[gnu::cold]] bool fail(ErrorCode code, std::string message, std::uint32_t position = 0) {
    return fail(Error{code, std::move(message), file_offset_ + position, {}});
  }
  // Puts the name of the tensor that was being read in front of error_.
  [[gnu::cold]] bool fail_in(const Child& child, std::uint32_t path);
  // The key of the place where something was found. A tensor that is the state of an object has no
  // key of its own: the empty one.
  static value::Cell key_of(const Child& child) noexcept {
    return child.has_key ? child.key : value::make_cell(Value::Kind::string, std::uint64_t{0});
  }
  // One of Mark, or first_decoded and a number.
  std::uint32_t mark_at(const std::uint32_t* mark) const noexcept {
    return *mark < first_mark_ ? mark_unknown : *mark - first_mark_;
  }
  void set_mark(std::uint32_t* mark, std::uint32_t value) const noexcept {
    *mark = first_mark_ + value;
  }
  Value value(const value::Cell& cell) const noexcept { return {&tree_, cell}; }

  const value::Tree& tree_;
  std::uint64_t file_offset_;
  Limits limits_;
  WorkBudget budget_;
  TensorTable table_;
  TensorDecoder decoder_;
  ComposedDecoder composed_;
  Error error_;
  const ScriptClasses* script_;
  bool has_arrays_;
  std::uint32_t first_mark_;
  const HeaderMeaning* last_meaning_ = nullptr;
  std::vector<TensorSpec> decoded_;  // of objects, each once, however often it is mentioned
  std::unordered_map<std::uint32_t, ComposedTensor> quantized_;  // by the number of such an object
  std::vector<Frame> frames_;
  std::unordered_set<const void*> calls_;            // with arguments, which the walk has been in
  std::deque<std::vector<Attachment>> attachments_;  // of the tensors that are objects, by number
  std::uint64_t cuts_ = 0;                           // containers that were met inside themselves
};

}  // namespace weightmap::torch
