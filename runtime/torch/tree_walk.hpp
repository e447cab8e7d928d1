// The walk through a value tree to all that is a tensor, and under which names.
//
// Unknown globals are opaque nodes that are looked into, so that a training checkpoint or a whole
// pickled module still lists its tensors. What is done with a tensor is for a subclass to say.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

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

class TreeWalk : StorageNumbering {
 public:
  TreeWalk(const TreeWalk&) = delete;
  TreeWalk& operator=(const TreeWalk&) = delete;

  // Above every mark that the walk has left in the tree: where those of another walk begin.
  std::uint32_t next_mark() const noexcept {
    return first_mark_ + first_decoded + static_cast<std::uint32_t>(attachments_.size());
  }

 protected:
  // Marks below `first_mark` are those of a walk before, and count for nothing.
  TreeWalk(const value::Tree& tree, const ReadLimits& limits, TensorTable table,
           std::uint32_t first_mark)
      : tree_(tree),
        file_offset_(limits.file_offset),
        limits_(limits.limits),
        budget_(tree.pickle().size(), limits.file_offset),
        table_(std::move(table)),
        decoder_(tree, limits.file_offset, limits.views, limits.limits, table_, *this, budget_),
        script_(limits.script),
        has_arrays_(limits.has_arrays),
        first_mark_(first_mark) {}
  ~TreeWalk() = default;

  // For the decoder: where storages are entered.
  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype,
                               std::uint64_t file_offset) override;
  // Whether the walk is in the constants of a TorchScript archive, whose storages are numbered by
  // themselves.
  bool in_constants() const noexcept { return in_constants_; }
  // TensorSpec flags: what the class of the object that holds this child says that it is.
  std::uint8_t role_of(const Child& child) const;

  // These answer false after setting error_, which is cheaper to return 100,000 times than a
  // Result.
  bool walk();

  virtual bool found_packed(const value::PackedCall& call, const Child& child,
                            std::uint32_t path) = 0;
  // An object that is a tensor, met for the first time: they are numbered from 0 on. Then, and
  // whenever it is met again, the place where it was met.
  virtual bool found_call(TensorCall& call, const value::Cell& object) = 0;
  virtual bool found_object(std::uint32_t number, const Child& child, std::uint32_t path) = 0;
  // A call that makes more than a dense tensor, wherever it is met; its parts come next. If it is
  // entered into table_.composed, how many parts it has is counted there.
  virtual bool found_composed(const TensorCall& call, const Child& child, std::uint32_t path) = 0;
  // An array of numpy whose elements stand in the pickle, wherever it is met.
  virtual bool found_array(const NumpyArray& array, const Child& child, std::uint32_t path) = 0;
  // A storage that no tensor views: saved by itself, or the argument of a call that we do not know.
  virtual bool found_storage(std::string_view key, std::int64_t numel, DType dtype) = 0;
  virtual bool is_tensor(const value::PackedCall& call) = 0;
  // A chance to take some of the items ahead out of a frame.
  virtual bool found_items(Frame&) { return true; }

  // Notes that what was found is no tensor with a name of its own.
  void note_other_item() noexcept {
    if (!frames_.empty()) frames_.back().note_other_item();
  }
  // Counts a tensor at this place into the table's sums.
  bool count(const Child& child, std::uint32_t path, std::uint32_t position);
  bool check_memory(std::uint64_t more, std::uint32_t position);

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
  // Which tensor of those that found_call() was told of an object is.
  std::uint32_t number_of(const value::Cell& object) const noexcept {
    return *mark_of(object) - first_mark_ - first_decoded;
  }
  // The key of the place where something was found. A tensor that is the state of an object has no
  // key of its own: the empty one.
  static value::Cell key_of(const Child& child) noexcept {
    return child.has_key ? child.key : value::make_cell(Value::Kind::string, std::uint64_t{0});
  }

  const value::Tree& tree_;
  std::uint64_t file_offset_;
  Limits limits_;
  WorkBudget budget_;
  TensorTable table_;
  TensorDecoder decoder_;
  Error error_;

 private:
  bool walk_from(const Child& child, std::uint32_t path);
  bool walk_script();
  bool unwrap_typed(Child& child);
  bool visit(Child child, std::uint32_t path);
  bool visit_object(const Child& child, std::uint32_t path);
  bool enter_call(const Child& child, std::uint32_t path);
  bool visit_composed(const TensorCall& call, const Child& child, std::uint32_t path);
  bool visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
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
  // One of Mark, or first_decoded and a number.
  std::uint32_t mark_at(const std::uint32_t* mark) const noexcept {
    return *mark < first_mark_ ? mark_unknown : *mark - first_mark_;
  }
  void set_mark(std::uint32_t* mark, std::uint32_t value) const noexcept {
    *mark = first_mark_ + value;
  }
  Value value(const value::Cell& cell) const noexcept { return {&tree_, cell}; }

  const ScriptClasses* script_;
  bool has_arrays_;
  bool in_constants_ = false;
  std::uint32_t first_mark_;
  std::vector<Frame> frames_;
  std::unordered_set<const void*> calls_;            // with arguments, which the walk has been in
  std::deque<std::vector<Attachment>> attachments_;  // of the tensors that are objects, by number
  std::uint64_t cuts_ = 0;                           // containers that were met inside themselves
};

}  // namespace weightmap::torch
