#include "runtime/pickle/machine.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/pickle/opcode.hpp"
#include "runtime/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

constexpr std::size_t max_global_bytes = 4096;

// "a tuple", "an object".
std::string describe(Value::Kind kind) {
  const std::string name(to_string(kind));
  return (std::string_view("aeiou").find(name.front()) == std::string_view::npos ? "a " : "an ") +
         name;
}
std::string describe(const value::Cell& cell) { return describe(kind_of(cell)); }

// A global, or what protocol 2 writes for Outer.Inner: a call of a global, getattr, with a global
// and a text. Nothing is called, so the name of the function is not looked at.
bool is_named(value::Cell cell) noexcept {
  constexpr int max_nesting = 8;  // of classes in classes
  for (int i = 0; i <= max_nesting; ++i) {
    if (kind_of(cell) == Value::Kind::global) return true;
    if (kind_of(cell) != Value::Kind::object || cell.part != value::whole_value) return false;
    const value::Object& call = *target_of<const value::Object>(cell);
    if (kind_of(call.callable) != Value::Kind::global || call.is_new_object || call.has_state ||
        call.elements != nullptr || call.items != nullptr || call.arguments.count != 2 ||
        kind_of(tuple_element(call.arguments, 1)) != Value::Kind::string)
      return false;
    cell = tuple_element(call.arguments, 0);
  }
  return false;
}

}  // namespace

Machine::Machine(value::Tree& tree, std::uint64_t file_offset, const ParseLimits& limits,
                 Packing packing)
    : tree_(tree),
      arena_(tree.arena_),
      begin_(reinterpret_cast<const Byte*>(tree.pickle().data())),
      end_(begin_ + tree.pickle().size()),
      at_(begin_),
      opcode_at_(begin_),
      file_offset_(file_offset),
      limits_(limits),
      packing_(packing),
      memo_(arena_),
      shapes_(arena_) {}

bool Machine::run() {
  while (!stopped_) {
    opcode_at_ = at_;
    if (at_ == end_) return fail(ErrorCode::corrupt, "the pickle ends without a STOP opcode");
    if (!step(*at_++)) return false;
  }
  tree_.packed_count_ = memo_.packed_count();
  return true;
}

bool Machine::step(std::uint8_t opcode) {
  switch (opcode) {
    case op_BINUNICODE:
      if (packing_ == Packing::on && match_named_call()) return true;
      return push_text(string, 4);
    case op_BINPUT:
    case op_LONG_BINPUT: {
      std::uint64_t id;
      return read_unsigned(opcode == op_BINPUT ? 1 : 4, id) && put(id);
    }
    case op_BINGET:
    case op_LONG_BINGET: {
      if (packing_ == Packing::on && match_call(opcode_at_, no_name)) return true;
      std::uint64_t id;
      return read_unsigned(opcode == op_BINGET ? 1 : 4, id) && get(id);
    }
    case op_MARK:
      if (marks_.size() >= limits_.depth * std::size_t{4})
        return fail(ErrorCode::limit_exceeded,
                    "the pickle has more open marks than the depth limit "
                    "of " +
                        std::to_string(limits_.depth) + " allows");
      marks_.push_back(stack_size_);
      return true;
    case op_BININT:
      return push_int(4, true);
    case op_BININT1:
      return push_int(1, false);
    case op_BININT2:
      return push_int(2, false);
    case op_LONG1:
      return push_long(1);
    case op_NEWTRUE:
      return push(value::make_cell(boolean, std::uint64_t{1}));
    case op_NEWFALSE:
      return push(value::make_cell(boolean, std::uint64_t{0}));
    case op_NONE:
      return push({});
    case op_BINFLOAT:
      return push_float();
    case op_EMPTY_TUPLE:
      return push(value::make_cell(tuple, std::uint64_t{0}));
    case op_TUPLE1:
      return tuple_of(1);
    case op_TUPLE2:
      return tuple_of(2);
    case op_TUPLE3:
      return tuple_of(3);
    case op_TUPLE:
      return tuple_to_mark();
    case op_EMPTY_LIST:
      return push_container(list);
    case op_EMPTY_DICT:
      return push_container(dict);
    case op_EMPTY_SET:
      return push_container(set);
    case op_APPEND:
      return append_top();
    case op_APPENDS:
      return extend_to_mark(list, &value::Object::elements);
    case op_SETITEM:
      return set_top();
    case op_SETITEMS:
      return extend_to_mark(dict, &value::Object::items);
    case op_GLOBAL:
      return global();
    case op_REDUCE:
      return make_object(false);
    case op_NEWOBJ:
      return make_object(true);
    case op_BUILD:
      return build();
    case op_BINPERSID:
      return persistent_id();
    case op_SHORT_BINSTRING:
      return push_text(string, 1);
    case op_BINSTRING:
      return push_text(string, 4);
    case op_LONG4:
      return push_long(4);
    case op_PROTO: {
      std::uint64_t version;
      if (!read_unsigned(1, version)) return false;
      if (version >= 2 && version <= 5) return true;
      return fail(ErrorCode::unsupported,
                  "the pickle has protocol " + std::to_string(version) + ", expected 2 to 5");
    }
    case op_STOP:
      return stop();
    default:
      return step_protocol_4(opcode);
  }
}

bool Machine::step_protocol_4(std::uint8_t opcode) {
  switch (opcode) {
    case op_FRAME: {  // only a hint for buffering
      std::uint64_t length;
      return read_unsigned(8, length) && need(length);
    }
    case op_MEMOIZE:
      return put(memo_.next_id());
    case op_SHORT_BINUNICODE:
      return push_text(string, 1);
    case op_BINUNICODE8:
      return push_text(string, 8);
    case op_SHORT_BINBYTES:
      return push_text(Value::Kind::bytes, 1);
    case op_BINBYTES:
      return push_text(Value::Kind::bytes, 4);
    case op_BINBYTES8:
      return push_text(Value::Kind::bytes, 8);
    case op_BYTEARRAY8:
      return push_text(byte_array, 8);
    case op_ADDITEMS:
      return extend_to_mark(set, &value::Object::elements);
    case op_FROZENSET:
      return frozenset();
    case op_STACK_GLOBAL:
      return stack_global();
    default:
      return refuse(opcode);
  }
}

bool Machine::refuse(std::uint8_t opcode) {
  const std::string name = opcode_name(opcode);
  switch (opcode) {
    case op_INST:
    case op_OBJ:
    case op_NEWOBJ_EX:
    case op_EXT1:
    case op_EXT2:
    case op_EXT4:
    case op_PERSID:
    case op_NEXT_BUFFER:
    case op_READONLY_BUFFER:
      return fail(ErrorCode::unsafe_pickle,
                  "the pickle uses opcode " + name + ", which a checkpoint does not need");
    default:
      break;
  }
  const bool is_opcode = name.front() != '0' || opcode == op_POP;
  return fail(is_opcode ? ErrorCode::unsupported : ErrorCode::corrupt,
              is_opcode ? "the pickle uses opcode " + name + ", which torch does not write"
                        : "the pickle has byte " + name + " where an opcode should be");
}

bool Machine::fail(ErrorCode code, std::string message) {
  error_ = Error{code, std::move(message), file_offset_ + position(opcode_at_), {}};
  return false;
}

bool Machine::fail_budget() {
  return fail(ErrorCode::limit_exceeded, "the pickle needs more memory than its budget of " +
                                             std::to_string(limits_.budget_bytes) + " bytes");
}

bool Machine::stop() {
  if (stack_size_ != 1 || !marks_.empty())
    return fail(ErrorCode::corrupt, "the pickle stops with " + std::to_string(stack_size_) +
                                        " values and " + std::to_string(marks_.size()) +
                                        " open marks on its stack, expected one value");
  tree_.root_ = stack_[0];
  tree_.pickle_ = tree_.pickle_.first(position(at_));  // what lies behind counts for nothing
  stopped_ = true;
  return true;
}

bool Machine::need(std::uint64_t count) {
  const auto left = static_cast<std::uint64_t>(end_ - at_);
  if (count <= left) return true;
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " needs " +
                                      bytes::counted(count, "byte") + ", the pickle has " +
                                      std::to_string(left) + " left");
}

bool Machine::read_unsigned(unsigned width, std::uint64_t& value) {
  if (!need(width)) return false;
  value = 0;
  for (unsigned i = 0; i < width; ++i) value |= std::uint64_t{at_[i]} << (8 * i);
  at_ += width;
  return true;
}

bool Machine::read_line(std::string_view& line) {
  const std::size_t searched = std::min(static_cast<std::size_t>(end_ - at_), max_global_bytes + 1);
  const void* newline = std::memchr(at_, '\n', searched);
  if (newline == nullptr)
    return fail(ErrorCode::corrupt,
                "opcode GLOBAL has no newline within " + std::to_string(searched) + " bytes");
  const auto* stop = static_cast<const Byte*>(newline);
  line = tree_.text(position(at_), static_cast<std::uint64_t>(stop - at_));
  at_ = stop + 1;
  return true;
}

bool Machine::grow_stack() {
  const std::size_t grown = std::max<std::size_t>(64, stack_.size() * 2);
  // While a vector grows, the old cells and the new ones exist together.
  if (grown > 0xFFFFFFFF || !arena_.charge((grown - stack_.size()) * sizeof(value::Cell) * 3 / 2))
    return fail_budget();
  stack_.resize(grown);
  return true;
}

bool Machine::top(std::uint32_t count, value::Cell*& first) {
  if (stack_size_ - floor() < count)
    return fail(ErrorCode::corrupt,
                "opcode " + opcode_name(*opcode_at_) + " needs " + bytes::counted(count, "value") +
                    " above the last mark, found " + std::to_string(stack_size_ - floor()));
  first = stack_.data() + (stack_size_ - count);
  return true;
}

bool Machine::pop_mark(value::Cell*& first, std::uint32_t& count) {
  if (marks_.empty())
    return fail(ErrorCode::corrupt,
                "opcode " + opcode_name(*opcode_at_) + " finds no mark on the stack");
  const std::uint32_t mark = marks_.back();
  marks_.pop_back();
  first = stack_.data() + mark;
  count = stack_size_ - mark;
  stack_size_ = mark;
  return true;
}

bool Machine::push_text(Value::Kind kind, unsigned length_width) {
  std::uint64_t length;
  if (!read_unsigned(length_width, length) || !need(length)) return false;
  const std::uint32_t start = position(at_);
  at_ += length;
  return push(value::make_cell(kind, std::uint64_t{start}, static_cast<std::uint32_t>(length)));
}

bool Machine::push_int(unsigned width, bool is_signed) {
  std::uint64_t value;
  if (!read_unsigned(width, value)) return false;
  if (is_signed) return push(value::make_integer(static_cast<std::int32_t>(value)));
  return push(value::make_integer(static_cast<std::int64_t>(value)));
}

bool Machine::push_long(unsigned length_width) {
  std::uint64_t length;
  if (!read_unsigned(length_width, length) || !need(length)) return false;
  const Byte* first = at_;
  at_ += length;
  if (length > 8)
    return push(value::make_cell(big_integer, std::uint64_t{position(first)},
                                 static_cast<std::uint32_t>(length)));
  std::uint64_t value = 0;
  for (std::uint64_t i = 0; i < length; ++i) value |= std::uint64_t{first[i]} << (8 * i);
  const bool is_negative = length > 0 && (first[length - 1] & 0x80) != 0;
  if (is_negative && length < 8) value |= ~std::uint64_t{0} << (8 * length);
  return push(value::make_integer(static_cast<std::int64_t>(value)));
}

bool Machine::push_float() {
  if (!need(8)) return false;
  std::uint64_t bits = 0;  // the one big-endian operand of the format
  for (int i = 0; i < 8; ++i) bits = bits << 8 | at_[i];
  at_ += 8;
  return push(value::make_cell(real, bits));
}

value::Sequence* Machine::new_sequence() {
  value::Sequence* sequence = value::make_sequence(arena_);
  if (sequence == nullptr) fail_budget();
  return sequence;
}

bool Machine::push_container(Value::Kind kind) {
  value::Sequence* sequence = new_sequence();
  return sequence != nullptr && push(value::make_cell(kind, sequence));
}

bool Machine::nest(const value::Cell* children, std::uint32_t count, std::uint32_t& depth) {
  depth = deepest(children, count) + 1;
  if (depth <= limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool Machine::push_tuple(value::Cell* first, std::uint32_t count) {
  std::uint32_t depth = 0;
  if (!nest(first, count, depth)) return false;
  value::Cell made;
  return make_tuple(arena_, first, count, depth, made) ? push(made) : fail_budget();
}

bool Machine::tuple_of(std::uint32_t count) {
  value::Cell* first = nullptr;
  if (!top(count, first)) return false;
  stack_size_ -= count;
  return push_tuple(first, count);
}

bool Machine::tuple_to_mark() {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  if (!pop_mark(first, count)) return false;
  if (count == 0) return push(value::make_cell(tuple, std::uint64_t{0}));
  return push_tuple(first, count);
}

bool Machine::frozenset() {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  if (!pop_mark(first, count)) return false;
  value::Sequence* sequence = new_sequence();
  return sequence != nullptr && extend(*sequence, first, count) &&
         push(value::make_cell(frozen_set, sequence));
}

bool Machine::global() {
  std::string_view module;
  std::string_view name;
  return read_line(module) && read_line(name) && push_global(module, name);
}

bool Machine::stack_global() {
  value::Cell* first = nullptr;
  if (!top(2, first)) return false;
  if (kind_of(first[0]) != string || kind_of(first[1]) != string)
    return fail(ErrorCode::unsafe_pickle, "opcode STACK_GLOBAL names " + describe(first[0]) +
                                              " and " + describe(first[1]) +
                                              ", expected two strings");
  stack_size_ -= 2;
  return push_global(tree_.text(first[0].payload, first[0].count),
                     tree_.text(first[1].payload, first[1].count));
}

bool Machine::push_global(std::string_view module, std::string_view name) {
  const value::Global* made = value::make_global(arena_, module, name, position(opcode_at_));
  if (made == nullptr) return fail_budget();
  tree_.globals_.push_back(made);
  return push(value::make_cell(Value::Kind::global, made));
}

bool Machine::make_object(bool is_new_object) {
  value::Cell* first = nullptr;
  if (!top(2, first)) return false;
  if (!is_named(first[0]))
    return fail(ErrorCode::unsafe_pickle, "opcode " + opcode_name(*opcode_at_) + " calls " +
                                              describe(first[0]) + ", expected a named global");
  if (kind_of(first[1]) != tuple)
    return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has " +
                                        describe(first[1]) + " for arguments, expected a tuple");
  std::uint32_t depth = 0;
  if (!nest(first, 2, depth)) return false;
  const value::Object* made =
      value::make_object(arena_, first[0], first[1], is_new_object, depth, position(opcode_at_));
  if (made == nullptr) return fail_budget();
  stack_size_ -= 2;
  return push(value::make_cell(object, made));
}

bool Machine::persistent_id() {
  value::Cell* first = nullptr;
  std::uint32_t depth = 0;
  if (!top(1, first) || !nest(first, 1, depth)) return false;
  value::Cell made;
  if (!make_persistent_id(arena_, *first, depth, made)) return fail_budget();
  --stack_size_;
  return push(made);
}

bool Machine::build() {
  value::Cell* first = nullptr;
  std::uint32_t depth = 0;
  if (!top(2, first) || is_packed(first[0]) || !nest(first + 1, 1, depth)) return false;
  if (kind_of(first[0]) != object)
    return fail(ErrorCode::unsafe_pickle,
                "opcode BUILD sets the state of " + describe(first[0]) + ", expected an object");
  value::Object& built = *target_of<value::Object>(first[0]);
  if (built.has_state)
    return fail(ErrorCode::unsupported, "opcode BUILD sets the state of an object twice");
  built.state = first[1];
  built.has_state = true;
  built.depth = std::max(built.depth, depth);
  built.changed_at = position(opcode_at_);
  --stack_size_;
  return true;
}

bool Machine::append_top() {
  value::Cell* first = nullptr;
  if (!top(2, first) || !extend(first[0], list, &value::Object::elements, first + 1, 1))
    return false;
  --stack_size_;
  return true;
}

bool Machine::set_top() {
  value::Cell* first = nullptr;
  if (!top(3, first) || !extend(first[0], dict, &value::Object::items, first + 1, 2)) return false;
  stack_size_ -= 2;
  return true;
}

bool Machine::extend_to_mark(Value::Kind plain, value::Sequence* value::Object::*of_object) {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  if (!pop_mark(first, count)) return false;
  if (stack_size_ == floor())
    return fail(ErrorCode::corrupt,
                "opcode " + opcode_name(*opcode_at_) + " finds nothing below the mark to change");
  if (plain == dict && count % 2 != 0)
    return fail(ErrorCode::corrupt, "opcode SETITEMS has " + std::to_string(count) +
                                        " values, expected pairs of key and value");
  return extend(stack_[stack_size_ - 1], plain, of_object, first, count);
}

bool Machine::extend(value::Cell& container, Value::Kind plain,
                     value::Sequence* value::Object::*of_object, const value::Cell* first,
                     std::uint32_t count) {
  if (is_packed(container)) return false;
  if (kind_of(container) == plain)
    return extend(*target_of<value::Sequence>(container), first, count);
  if (kind_of(container) == object) {
    value::Object& changed = *target_of<value::Object>(container);
    value::Sequence*& sequence = changed.*of_object;
    if (sequence == nullptr) sequence = new_sequence();
    if (sequence == nullptr || !extend(*sequence, first, count)) return false;
    changed.depth = std::max(changed.depth, sequence->depth);
    changed.changed_at = sequence->changed_at;
    return true;
  }
  return fail(ErrorCode::unsafe_pickle, "opcode " + opcode_name(*opcode_at_) + " changes " +
                                            describe(container) + ", expected " + describe(plain));
}

bool Machine::extend(value::Sequence& sequence, const value::Cell* first, std::uint32_t count) {
  std::uint32_t depth = 0;
  if (!nest(first, count, depth)) return false;
  return value::extend(arena_, sequence, first, count, depth, position(opcode_at_)) ||
         fail_budget();
}

bool Machine::is_packed(const value::Cell& cell) {
  if (cell.part == value::whole_value) return false;
  must_repack_ = true;
  return true;
}

bool Machine::put(std::uint64_t id) {
  value::Cell* first = nullptr;
  if (!top(1, first)) return false;
  // A pickler counts its memo from zero, and each entry costs it at least two bytes.
  if (id >= tree_.pickle().size())
    return fail(ErrorCode::limit_exceeded,
                "memo id " + std::to_string(id) + " is larger than the pickle itself");
  switch (memo_.put(static_cast<std::uint32_t>(id), *first)) {
    case Memo::Outcome::ok:
      return true;
    case Memo::Outcome::out_of_budget:
      return fail_budget();
    case Memo::Outcome::overlaps_packed:
      break;
  }
  must_repack_ = true;
  return false;
}

bool Machine::get(std::uint64_t id) {
  value::Cell scratch;
  const value::Cell* found = memo_.get(static_cast<std::uint32_t>(id), scratch);
  if (found != nullptr) return push(*found);
  return fail(ErrorCode::corrupt, "memo id " + std::to_string(id) + " was never set");
}

Result<std::unique_ptr<value::Tree>> parse(bytes::Buffer pickle_memory,
                                           std::span<const std::byte> pickle,
                                           std::uint64_t file_offset, const ParseLimits& limits,
                                           std::pmr::memory_resource& memory) {
  // A call and the cells that refer to it take about half as many bytes as it has in the pickle.
  const std::size_t chunk_bytes = pickle.size() + pickle.size() / 8 + 4096;
  auto tree = std::make_unique<value::Tree>(std::move(pickle_memory), pickle, memory, chunk_bytes,
                                            limits.budget_bytes);
  constexpr bool little_endian = std::endian::native == std::endian::little;
  Machine machine(*tree, file_offset, limits,
                  little_endian ? Machine::Packing::on : Machine::Packing::off);
  if (machine.run()) return tree;
  if (!machine.must_repack()) return tl::unexpected<Error>(machine.take_error());
  tree = std::make_unique<value::Tree>(std::move(*tree).release_pickle(), pickle, memory,
                                       chunk_bytes, limits.budget_bytes);
  Machine general(*tree, file_offset, limits, Machine::Packing::off);
  if (general.run()) return tree;
  return tl::unexpected<Error>(general.take_error());
}

}  // namespace weightmap::pickle
