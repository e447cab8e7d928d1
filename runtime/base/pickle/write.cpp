#include "runtime/base/pickle/write.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/pickle/opcode_output.hpp"
#include "runtime/base/pickle/write_task.hpp"
#include "runtime/base/pickle/written_nodes.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::pickle {
namespace {

using value::Cell;
using value::Tree;
using enum Value::Kind;

constexpr std::uint64_t batch_values = 1000;  // between MARK and APPENDS or SETITEMS

class Writer {
 public:
  explicit Writer(const WriteOptions& options)
      : replace_(options.replace), max_bytes_(std::min(options.max_bytes, longest)) {}

  Result<std::vector<std::byte>> run(const Value& root);

 private:
  // These return false after fail().
  bool write_all(const Value& root);
  bool step();
  bool more_of_tuple();
  bool more_of_batches();
  // Writes a value, or its beginning, and leaves the rest to tasks.
  bool value(const Tree* tree, const Cell& cell, bool may_replace = true);
  bool node(const Tree* tree, const Cell& cell, bool may_replace);
  bool object(const Tree* tree, const Cell& cell, WrittenNodes::Number number);
  bool packed(const Tree* tree, const value::PackedCall& call, WrittenNodes::Number number);
  bool set_like(const Tree* tree, const Cell& cell, WrittenNodes::Number number);
  bool string(std::string_view text, WrittenNodes::Number number);
  bool global(std::string_view module, std::string_view name, WrittenNodes::Number number);
  bool encoded(std::string_view content, WrittenNodes::Number number);
  bool byte_array_like(std::string_view content, WrittenNodes::Number number);
  bool long_integer(std::string_view digits);

  // These cannot fail, since reserve() was called before.
  void container(const Tree* tree, const Cell& cell, WrittenNodes::Number number);
  void reduce(const Tree* tree, const Cell& cell, WrittenNodes::Number number);
  void end_tuple(std::size_t count, WrittenNodes::Number number);
  void refetch_tuple(std::size_t count, std::uint32_t id);
  void latin1();
  void put(WrittenNodes::Number number = Task::unshared);
  void get(std::uint32_t id);

  void push(Step step, const Tree* tree, const Cell& cell,
            WrittenNodes::Number number = Task::unshared);
  void push_batches(const Tree* tree, const value::Sequence* sequence, bool is_pairs,
                    bool is_exact);
  void end_replaced(const Task& task);

  bool reserve(std::uint64_t count) {
    return out_.reserve(count + opcode_bytes, max_bytes_) || fail_length();
  }
  [[gnu::cold]] bool fail(ErrorCode code, std::string message) {
    error_ = Error{code, std::move(message)};
    return false;
  }
  [[gnu::cold]] bool fail_length() {
    return fail(ErrorCode::limit_exceeded,
                "the pickle would be longer than " + bytes::counted(max_bytes_, "byte"));
  }

  static constexpr std::uint64_t longest = 0xFFFFFFFF;
  // Exceeds the opcodes between two calls of reserve(), without texts.
  static constexpr std::uint64_t opcode_bytes = OpcodeOutput::margin;

  const std::function<std::optional<Value>(const Value&)>& replace_;
  const std::uint64_t max_bytes_;
  OpcodeOutput out_;
  std::vector<Task> tasks_;
  WrittenNodes nodes_;
  std::unordered_map<std::string, std::uint32_t> globals_;  // "module\nname\n" -> memo id
  std::optional<std::uint32_t> latin1_;                     // memo id
  std::uint32_t next_id_ = 0;
  // Elements of tuples that were begun a second time before their end, and how many may be.
  std::uint64_t again_ = 0;
  static constexpr std::uint64_t most_again = std::uint64_t{1} << 20;
  // The header of the last packed call, and the memo ids of its values in this pickle.
  const value::PackedHeader* known_header_ = nullptr;
  value::PackedHeader::Ids known_ids_{};
  Error error_;
};

Result<std::vector<std::byte>> Writer::run(const Value& root) {
  if (write_all(root)) return out_.take();
  return tl::unexpected<Error>(std::move(error_));
}

bool Writer::write_all(const Value& root) {
  const Tree* const tree = root.tree();
  // Writing a whole parsed tree takes about as much as it took in the file. A failure to reserve
  // that much does not matter.
  if (tree != nullptr && root.is_same_as({tree, tree->root()}))
    out_.reserve(tree->pickle().size() + opcode_bytes, max_bytes_);
  if (!reserve(0)) return false;
  out_.opcode(op_PROTO, 2, 1);
  push(Step::value, tree, root.cell());
  while (!tasks_.empty())
    if (!reserve(0) || !step()) return false;
  out_.byte(op_STOP);
  return out_.size() <= max_bytes_ || fail_length();
}

bool Writer::step() {
  if (tasks_.back().step == Step::tuple) return more_of_tuple();
  if (tasks_.back().step == Step::batches) return more_of_batches();
  const Task task = tasks_.back();
  tasks_.pop_back();
  switch (task.step) {
    case Step::value:
      return value(task.tree, task.cell);
    case Step::reduce:
      reduce(task.tree, task.cell, task.node);
      return true;
    case Step::build:
    case Step::persist:
      out_.byte(task.step == Step::build ? op_BUILD : op_BINPERSID);
      return true;
    case Step::call_of_set:
      out_.byte(op_TUPLE1);
      put();
      out_.byte(op_REDUCE);
      put(task.node);
      return true;
    default:
      end_replaced(task);
      return true;
  }
}

bool Writer::value(const Tree* tree, const Cell& cell, bool may_replace) {
  if (!reserve(0)) return false;
  switch (kind_of(cell)) {
    case none:
      out_.byte(op_NONE);
      return true;
    case boolean:
      out_.byte(cell.payload != 0 ? op_NEWTRUE : op_NEWFALSE);
      return true;
    case Value::Kind::integer:
      out_.integer(static_cast<std::int64_t>(cell.payload));
      return true;
    case real:
      out_.real(cell.payload);
      return true;
    case big_integer:
      return long_integer(tree->text(cell.payload, cell.count));
    case tuple:
      if (cell.count > 0) return node(tree, cell, may_replace);
      out_.byte(op_EMPTY_TUPLE);
      return true;
    case persistent_id: {
      if (may_replace && replace_)
        if (const std::optional<Value> other = replace_(Value(tree, cell)))
          return value(other->tree(), other->cell(), false);
      const Cell id = Value(tree, cell).persistent_id().cell();
      if (is_flat(id)) {
        if (!value(tree, id)) return false;
        out_.byte(op_BINPERSID);
        return true;
      }
      push(Step::persist, tree, cell);
      push(Step::value, tree, id);
      return true;
    }
    default:
      return node(tree, cell, may_replace);
  }
}

bool Writer::node(const Tree* tree, const Cell& cell, bool may_replace) {
  WrittenNodes::Number number = Task::unshared;
  if (may_be_shared(cell)) {
    number = nodes_.meet(*tree, cell);
    std::uint32_t& id = nodes_.id(number);
    if (id == WrittenNodes::begun) {
      // What it holds that is memoized already ends this.
      again_ += cell.count;
      if (kind_of(cell) != tuple || again_ > most_again)
        return fail(ErrorCode::invalid_argument,
                    "the value refers to itself: a value of kind " +
                        std::string(to_string(kind_of(cell))) +
                        " holds itself in what it is made of, directly or further down");
    } else if (id != WrittenNodes::unknown) {
      get(id);
      return true;
    }
    id = WrittenNodes::begun;
  }
  switch (kind_of(cell)) {
    case Value::Kind::string:
      return string(tree->text(cell.payload, cell.count), number);
    case Value::Kind::bytes:
      return encoded(tree->text(cell.payload, cell.count), number);
    case byte_array:
      return byte_array_like(tree->text(cell.payload, cell.count), number);
    case tuple:
      if (cell.count > 3) out_.byte(op_MARK);
      if (has_simple_elements(cell)) {
        for (std::uint32_t i = 0; i < cell.count; ++i)
          if (!value(tree, tuple_element(cell, i))) return false;
        end_tuple(cell.count, number);
        return true;
      }
      push(Step::tuple, tree, cell, number);
      tasks_.back().left = cell.count;
      return true;
    case set:
    case frozen_set:
      return set_like(tree, cell, number);
    case Value::Kind::global: {
      const value::Global& named = *target_of<const value::Global>(cell);
      return global(named.module, named.name, number);
    }
    case Value::Kind::object: {
      if (!may_replace || !replace_) return object(tree, cell, number);
      const Value original(tree, cell);
      const std::optional<Value> other = replace_(original);
      if (!other || other->is_same_as(original)) return object(tree, cell, number);
      push(Step::replaced, other->tree(), other->cell(), number);
      return value(other->tree(), other->cell(), false);
    }
    default:
      container(tree, cell, number);
      return true;
  }
}

void Writer::end_replaced(const Task& task) {
  if (task.node == Task::unshared) return;
  // A replacement such as a number has no memo id; replace() is called again next time.
  const bool is_known = has_memo_id(task.cell) && may_be_shared(task.cell);
  nodes_.id(task.node) =
      is_known ? nodes_.id(nodes_.meet(*task.tree, task.cell)) : WrittenNodes::unknown;
}

bool Writer::more_of_tuple() {
  const std::size_t depth = tasks_.size();
  const Tree* const tree = tasks_.back().tree;
  const Cell cell = tasks_.back().cell;
  while (tasks_.back().left > 0) {
    const std::uint64_t index = cell.count - tasks_.back().left--;
    if (!value(tree, tuple_element(cell, index))) return false;
    if (tasks_.size() != depth) return true;
  }
  const WrittenNodes::Number number = tasks_.back().node;
  tasks_.pop_back();
  if (number != Task::unshared && nodes_.id(number) != WrittenNodes::begun)
    refetch_tuple(cell.count, nodes_.id(number));
  else
    end_tuple(cell.count, number);
  return true;
}

// For a tuple that was written meanwhile, by something that it holds and that holds it.
void Writer::refetch_tuple(std::size_t count, std::uint32_t id) {
  if (count > 3) {
    out_.byte(op_POP_MARK);
  } else {
    for (std::size_t i = 0; i < count; ++i) out_.byte(op_POP);
  }
  get(id);
}

void Writer::end_tuple(std::size_t count, WrittenNodes::Number number) {
  if (count == 0) return out_.byte(op_EMPTY_TUPLE);
  static_assert(op_TUPLE2 == op_TUPLE1 + 1 && op_TUPLE3 == op_TUPLE1 + 2);
  out_.byte(count > 3 ? unsigned{op_TUPLE} : static_cast<unsigned>(op_TUPLE1 + count - 1));
  put(number);
}

// CPython uses different functions for a list or dict and for the items of an object. The latter
// omits the mark if the last value is alone in its batch, the former only if it is the only value;
// and a dict's last batch may be empty, since a dict ends with a batch that is not full.
bool Writer::more_of_batches() {
  const std::size_t depth = tasks_.size();
  for (;;) {
    Task& task = tasks_.back();
    if (!task.is_in_batch) {
      task.is_in_batch = true;
      task.in_batch = std::min(task.left, task.cells(batch_values));
      task.is_full = task.in_batch == task.cells(batch_values);
      task.left -= task.in_batch;
      if (!task.is_single) out_.byte(op_MARK);
    }
    while (tasks_.back().in_batch > 0) {
      --tasks_.back().in_batch;
      if (!value(tasks_.back().tree, *tasks_.back().cursor.next())) return false;
      if (tasks_.size() != depth) return true;
    }
    Task& ended = tasks_.back();
    if (ended.is_pairs)
      out_.byte(ended.is_single ? op_SETITEM : op_SETITEMS);
    else
      out_.byte(ended.is_single ? op_APPEND : op_APPENDS);
    const bool has_empty_batch = ended.is_exact && ended.is_pairs && ended.is_full;
    if (ended.left == 0 && !has_empty_batch) break;
    ended.is_in_batch = false;
    ended.is_single = !ended.is_exact && ended.left == ended.cells(1);
  }
  tasks_.pop_back();
  return true;
}

void Writer::push(Step step, const Tree* tree, const Cell& cell, WrittenNodes::Number number) {
  tasks_.push_back({.step = step, .node = number, .tree = tree, .cell = cell});
}

void Writer::push_batches(const Tree* tree, const value::Sequence* sequence, bool is_pairs,
                          bool is_exact) {
  if (sequence == nullptr || sequence->count == 0) return;
  push(Step::batches, tree, {});
  Task& task = tasks_.back();
  task.is_pairs = is_pairs;
  task.is_exact = is_exact;
  task.cursor = value::CellCursor(sequence);
  task.left = sequence->count;
  task.is_single = task.left == task.cells(1);
}

void Writer::container(const Tree* tree, const Cell& cell, WrittenNodes::Number number) {
  const bool is_dict = kind_of(cell) == dict;
  out_.byte(is_dict ? op_EMPTY_DICT : op_EMPTY_LIST);
  put(number);
  push_batches(tree, target_of<const value::Sequence>(cell), is_dict, true);
}

bool Writer::set_like(const Tree* tree, const Cell& cell, WrittenNodes::Number number) {
  if (!global("__builtin__", kind_of(cell) == set ? "set" : "frozenset", Task::unshared))
    return false;
  out_.byte(op_EMPTY_LIST);
  put();
  push(Step::call_of_set, tree, cell, number);
  push_batches(tree, target_of<const value::Sequence>(cell), false, true);
  return true;
}

bool Writer::object(const Tree* tree, const Cell& cell, WrittenNodes::Number number) {
  const value::PackedCall* const call = packed_call(cell);
  // With replace() set, the hooks must go through it, and pieces that are also reached in another
  // way need memo ids, so only other calls are written packed.
  if (call != nullptr && !call->has_shared_pieces && !replace_) return packed(tree, *call, number);
  const Value called(tree, cell);
  const Cell callable = called.callable().cell();
  const Cell arguments = called.arguments().cell();
  if (is_flat(callable) && is_flat(arguments)) {
    if (!value(tree, callable) || !value(tree, arguments)) return false;
    reduce(tree, cell, number);
    return true;
  }
  push(Step::reduce, tree, cell, number);  // tasks run in reverse order
  push(Step::value, tree, arguments);
  if (is_flat(callable)) return value(tree, callable);
  push(Step::value, tree, callable);
  return true;
}

// Writes the same bytes as the pieces of the call one by one.
bool Writer::packed(const Tree* tree, const value::PackedCall& call, WrittenNodes::Number number) {
  const value::PackedShape& shape = *call.shape;
  const value::PackedHeader& header = *shape.header;
  value::PackedHeader::Ids& ids = known_ids_;
  const bool is_known = known_header_ == &header;
  const auto constant = [&](const Cell& cell, std::uint32_t& id) {
    if (is_known) {
      get(id);
      return true;
    }
    if (!value(tree, cell)) return false;
    id = nodes_.id(nodes_.meet(*tree, cell));
    return true;
  };
  if (!constant(header.callable, ids.callable)) return false;
  out_.byte(op_MARK);
  out_.byte(op_MARK);
  if (!constant(header.tag, ids.tag) || !constant(header.type, ids.type)) return false;
  if (!value(tree, packed_key_cell(call)) || !constant(header.location, ids.location)) return false;
  out_.integer(shape.numel);
  out_.byte(op_TUPLE);
  put();
  out_.byte(op_BINPERSID);
  out_.integer(shape.storage_offset);
  for (const std::span<const std::int64_t> dims : {shape.sizes(), shape.strides()}) {
    constexpr std::uint64_t longest_integer = 10;
    if (!reserve(dims.size() * longest_integer)) return false;
    if (dims.size() > 3) out_.byte(op_MARK);
    for (const std::int64_t dim : dims) out_.integer(dim);
    end_tuple(dims.size(), Task::unshared);
  }
  out_.byte(call.requires_grad ? op_NEWTRUE : op_NEWFALSE);
  if (!constant(header.hooks_callable, ids.hooks_callable)) return false;
  out_.byte(op_EMPTY_TUPLE);
  out_.byte(op_REDUCE);
  put();
  if (header.ids.extra != value::PackedHeader::no_id && !constant(header.extra, ids.extra))
    return false;
  out_.byte(op_TUPLE);
  put();
  out_.byte(op_REDUCE);
  put(number);
  known_header_ = &header;
  return true;
}

void Writer::reduce(const Tree* tree, const Cell& cell, WrittenNodes::Number number) {
  const value::Object* const whole =
      cell.part == value::whole_value ? target_of<const value::Object>(cell) : nullptr;
  out_.byte(whole != nullptr && whole->is_new_object ? op_NEWOBJ : op_REDUCE);
  put(number);
  if (whole == nullptr || !(whole->has_state || whole->items || whole->elements)) return;
  if (whole->has_state) {
    push(Step::build, tree, cell);
    push(Step::value, tree, whole->state);
  }
  push_batches(tree, whole->items, true, false);
  push_batches(tree, whole->elements, false, false);
}

bool Writer::string(std::string_view text, WrittenNodes::Number number) {
  const std::size_t valid = bytes::valid_prefix(text);
  if (valid != text.size())
    return fail(ErrorCode::invalid_argument, "the text " + bytes::quote(text) +
                                                 " is not UTF-8 at its byte " +
                                                 std::to_string(valid) + ", so no string holds it");
  if (!reserve(text.size())) return false;
  out_.string(text);
  put(number);
  return true;
}

bool Writer::global(std::string_view module, std::string_view name, WrittenNodes::Number number) {
  const std::string line = std::string(module) + '\n' + std::string(name) + '\n';
  if (const auto known = globals_.find(line); known != globals_.end()) {
    get(known->second);
    if (number != Task::unshared) nodes_.id(number) = known->second;
    return true;
  }
  if (std::ranges::count(line, '\n') != 2 || bytes::valid_prefix(line) != line.size())
    return fail(ErrorCode::invalid_argument,
                "the global " + bytes::quote(name) + " of module " + bytes::quote(module) +
                    " has a line break or is not UTF-8, so protocol 2 cannot name it");
  if (!reserve(line.size())) return false;
  globals_.emplace(line, next_id_);
  out_.byte(op_GLOBAL);
  out_.text(line);
  put(number);
  return true;
}

// Writes _codecs.encode(text, "latin1"), where each byte is a character. CPython writes empty bytes
// as __builtin__.bytes() instead, which torch.load(weights_only=True) refuses.
bool Writer::encoded(std::string_view content, WrittenNodes::Number number) {
  if (!global("_codecs", "encode", Task::unshared)) return false;
  const auto wide = static_cast<std::uint64_t>(
      std::ranges::count_if(content, [](char byte) { return (byte & 0x80) != 0; }));
  const std::uint64_t length = content.size() + wide;
  if (!reserve(length)) return false;
  out_.opcode(op_BINUNICODE, length, 4);
  out_.latin1_text(content);
  put();
  latin1();
  out_.byte(op_TUPLE2);
  put();
  out_.byte(op_REDUCE);
  put(number);
  return true;
}

void Writer::latin1() {
  if (latin1_) return get(*latin1_);
  latin1_ = next_id_;
  out_.string("latin1");
  put();
}

bool Writer::byte_array_like(std::string_view content, WrittenNodes::Number number) {
  if (!global("__builtin__", "bytearray", Task::unshared)) return false;
  if (content.empty()) {
    out_.byte(op_EMPTY_TUPLE);
  } else {
    if (!encoded(content, Task::unshared)) return false;
    out_.byte(op_TUPLE1);
    put();
  }
  out_.byte(op_REDUCE);
  put(number);
  return true;
}

bool Writer::long_integer(std::string_view digits) {
  // CPython omits bytes that only repeat the sign.
  const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(digits[i]); };
  while (digits.size() > 1 &&
         byte_at(digits.size() - 1) == ((byte_at(digits.size() - 2) & 0x80) != 0 ? 0xFF : 0))
    digits.remove_suffix(1);
  if (digits.size() <= 8) {
    std::uint64_t bits = (byte_at(digits.size() - 1) & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = digits.size(); i-- > 0;) bits = bits << 8 | byte_at(i);
    out_.integer(static_cast<std::int64_t>(bits));
    return true;
  }
  constexpr std::size_t most = 0x7FFFFFFF;  // LONG4 has a signed length
  if (digits.size() > most)
    return fail(ErrorCode::limit_exceeded, "an integer of " +
                                               bytes::counted(digits.size(), "byte") +
                                               " is longer than protocol 2 can write");
  if (!reserve(digits.size())) return false;
  const bool is_short = digits.size() <= 0xFF;
  out_.opcode(is_short ? op_LONG1 : op_LONG4, digits.size(), is_short ? 1 : 4);
  out_.text(digits);
  return true;
}

void Writer::put(WrittenNodes::Number number) {
  const bool is_short = next_id_ <= 0xFF;
  out_.opcode(is_short ? op_BINPUT : op_LONG_BINPUT, next_id_, is_short ? 1 : 4);
  if (number != Task::unshared) nodes_.id(number) = next_id_;
  ++next_id_;
}

void Writer::get(std::uint32_t id) {
  const bool is_short = id <= 0xFF;
  out_.opcode(is_short ? op_BINGET : op_LONG_BINGET, id, is_short ? 1 : 4);
}

}  // namespace

Result<std::vector<std::byte>> write(const Value& root, const WriteOptions& options) {
  return Writer(options).run(root);
}

}  // namespace weightmap::pickle
