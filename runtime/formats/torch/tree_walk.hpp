// Builds a table of the tensors in a value tree: their nodes, names and storages.
//
// Unknown globals are opaque nodes whose contents are searched, so that a training checkpoint or a
// whole pickled module still lists its tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/composed.hpp"
#include "runtime/formats/torch/numpy_array.hpp"
#include "runtime/formats/torch/script.hpp"
#include "runtime/formats/torch/tensor_decoder.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "runtime/formats/torch/walk_frame.hpp"
#include "runtime/formats/torch/work_budget.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Which arrays of numpy are tensors: those whose elements are in the mapping, or those, too, whose
// elements must be copied.
enum class Arrays : std::uint8_t { none, mapped, all };

struct ReadLimits {
  std::uint64_t file_offset;  // of the pickle, for error messages
  Limits limits;
  // Set for a TorchScript archive, whose tree ScriptPickle made; borrowed. nullptr for torch.save.
  const ScriptClasses* script = nullptr;
  Arrays arrays = Arrays::none;
  LegacyViews* views = nullptr;  // filled in for a legacy stream
};

class TreeWalk {
 public:
  // Marks in the tree below `first_mark` are ignored. `memory` must outlive the table.
  TreeWalk(const value::Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory,
           std::uint32_t first_mark);
  TreeWalk(const TreeWalk&) = delete;
  TreeWalk& operator=(const TreeWalk&) = delete;

  Result<TensorTable> run() &&;

 private:
  // These return false after setting error_: 100,000 Results would cost more.
  bool walk();
  bool walk_from(Child child, std::uint32_t path);
  bool walk_script();
  bool unwrap_typed(Child& child);
  bool visit(Child& child, std::uint32_t path);
  bool visit_packed(const value::PackedCall& call, const Child& child, std::uint32_t path);
  bool visit_object(const Child& child, std::uint32_t path);
  bool visit_composed(const TensorCall& call, const Child& child, std::uint32_t path);
  bool visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
  bool enter_call(const Child& child, std::uint32_t path);
  bool enter(const Child& child, std::uint32_t path);
  void note_module(const Child& child);
  bool check_state(const Value& object);
  bool leave();
  bool check_depth();
  std::uint32_t arguments_limit(const Value& container);
  std::uint32_t child_path(const Child& child, std::uint32_t parent);
  // Refuses a container whose items hold a key twice, except two tensors under strings or integers:
  // they have the same name, which the catalog notices.
  bool check_keys(const Value& container);
  bool is_tensor_cell(const value::Cell& cell);
  // Returns the TensorSpec flags that the class of the containing object implies.
  std::uint8_t role_of(const Child& child) const;

  // Tensor handling (read_tensors.cpp). An object that is a tensor is decoded at its first
  // occurrence, and added at each occurrence.
  bool decode(const TensorCall& call, const value::Cell& object);
  bool add_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  // Adds a composed tensor at each occurrence of its call; its parts come next.
  bool add_composed(const TensorCall& call, const Child& child, std::uint32_t path);
  // Its parts begin with tensor `first_part`.
  bool add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
                    std::uint32_t path, std::uint32_t position);
  // Adds a numpy array whose elements are in the pickle, at each occurrence.
  bool add_array(const NumpyArray& array, const Child& child, std::uint32_t path);
  bool add(const TensorSpec& spec, const Child& child, std::uint32_t path);
  // Adds the tensor at this place to the table's sums.
  bool count(const Child& child, std::uint32_t path, std::uint32_t position);
  bool check_memory(std::uint64_t more, std::uint32_t position);

  // Records an item that is not a tensor with a name of its own.
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
  // Prefixes error_ with the name of the current tensor.
  [[gnu::cold]] bool fail_in(const Child& child, std::uint32_t path);
  // Returns the key of a child. A tensor that is the state of an object has the empty key.
  static value::Cell key_of(const Child& child) noexcept {
    return child.has_key ? child.key : value::make_cell(Value::Kind::string, std::uint64_t{0});
  }
  // Returns one of Mark, or first_decoded plus a number.
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
  Arrays arrays_;
  bool has_attributes_ = false;
  std::uint32_t first_mark_;
  const HeaderMeaning* last_meaning_ = nullptr;
  std::vector<TensorSpec> decoded_;  // one for each object, at its first occurrence
  std::unordered_map<std::uint32_t, ComposedTensor> quantized_;  // by the number of the object
  std::vector<Frame> frames_;
  std::unordered_set<const void*> calls_;  // calls with arguments that the walk has entered
  std::deque<std::vector<Attachment>> attachments_;  // of tensor objects, by number
  std::uint64_t cuts_ = 0;                           // containers that occurred inside themselves
};

// Fails with unsafe_pickle if the pickle changes a tensor after making it, with corrupt if a
// tensor's description contradicts itself, with limit_exceeded. `memory` must outlive the result.
// Marks in the tree below `first_mark` are ignored.
Result<TensorTable> read_tensors(const value::Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark = 0);

}  // namespace weightmap::torch
