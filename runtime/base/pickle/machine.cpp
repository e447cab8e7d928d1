#include "runtime/base/pickle/machine.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

}  // namespace

std::string with_article(Value::Kind kind) {
  const std::string name(to_string(kind));
  return (std::string_view("aeiou").find(name.front()) == std::string_view::npos ? "a " : "an ") +
         name;
}

Machine::Machine(value::Tree& tree, std::uint64_t file_offset, const ParseLimits& limits,
                 Packing packing, std::span<const NamedPickle> parts)
    : tree_(tree),
      arena_(tree.arena()),
      begin_(reinterpret_cast<const Byte*>(tree.pickle().data())),
      end_(begin_ + tree.pickle().size()),
      at_(begin_),
      opcode_at_(begin_),
      file_offset_(file_offset),
      limits_(limits),
      packing_(packing),
      parts_(parts),
      memo_(arena_),
      shapes_(arena_) {
  if (!parts_.empty()) begin_part();
}

bool Machine::run() {
  while (!stopped_) {
    opcode_at_ = at_;
    if (at_ == end_) return fail(ErrorCode::corrupt, "the pickle ends without a STOP opcode");
    const std::uint8_t opcode = *at_++;
    if (packing_ == Packing::on && match_packed(opcode)) continue;
    if (!read_operand(opcode) || !step(opcode)) return false;
  }
  return true;
}

bool Machine::match_packed(std::uint8_t opcode) {
  if (opcode == op_BINUNICODE) return match_named_call();
  return (opcode == op_BINGET || opcode == op_LONG_BINGET) && match_call(opcode_at_, no_name);
}

bool Machine::read_operand(std::uint8_t opcode) {
  const OperandForm form = operand_forms[opcode];
  if (form.kind == OperandKind::none) return true;
  if (form.kind == OperandKind::extension) return refuse(opcode);
  MemoryOperands source(at_, end_, {max_number_bytes, max_name_bytes});
  const bool is_read = pickle::read_operand(source, form, operand_);
  at_ = source.at;
  return is_read || fail_operand(source);
}

bool Machine::fail_operand(const MemoryOperands& source) {
  if (source.needed > source.left()) return fail_short(source.needed);
  return fail(source.searched < source.left() ? ErrorCode::limit_exceeded : ErrorCode::corrupt,
              "opcode " + opcode_name(*opcode_at_) + " has no newline within " +
                  bytes::counted(source.searched, "byte"));
}

bool Machine::fail_short(std::uint64_t needed) {
  return fail(ErrorCode::corrupt,
              short_of(*opcode_at_, needed, static_cast<std::uint64_t>(end_ - at_)));
}

bool Machine::step(std::uint8_t opcode) {
  switch (opcode) {
    case op_BINUNICODE:
    case op_SHORT_BINUNICODE:
    case op_BINUNICODE8:
      return push_unicode();
    case op_BINPUT:
    case op_LONG_BINPUT:
      return put(operand_.number);
    case op_MEMOIZE:
      return put(memo_.count());
    case op_BINGET:
    case op_LONG_BINGET:
      return get(operand_.number);
    case op_MARK:
      if (marks_.size() >= limits_.depth * std::size_t{4})
        return fail(ErrorCode::limit_exceeded,
                    "the pickle has more open marks than the depth limit "
                    "of " +
                        std::to_string(limits_.depth) + " allows");
      marks_.push_back(stack_size_);
      return true;
    case op_BININT:
      return push(value::make_integer(static_cast<std::int32_t>(operand_.number)));
    case op_BININT1:
    case op_BININT2:
      return push(value::make_integer(static_cast<std::int64_t>(operand_.number)));
    case op_LONG1:
    case op_LONG4:
      return push_long();
    case op_NEWTRUE:
      return push(value::make_cell(boolean, std::uint64_t{1}));
    case op_NEWFALSE:
      return push(value::make_cell(boolean, std::uint64_t{0}));
    case op_NONE:
      return push({});
    case op_BINFLOAT:
      // The only big-endian operand of the format.
      return push(value::make_cell(real, __builtin_bswap64(operand_.number)));
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
      return call(false);
    case op_NEWOBJ:
      return call(true);
    case op_BUILD:
      return build();
    case op_BINPERSID:
      return persistent_id();
    case op_SHORT_BINSTRING:
    case op_BINSTRING:
      return check_sign() && push_python_2(operand_.text);
    case op_PROTO:
      if (operand_.number <= 5) return true;
      return fail(
          ErrorCode::unsupported,
          "the pickle has protocol " + std::to_string(operand_.number) + ", expected 0 to 5");
    case op_STOP:
      return stop();
    default:
      return step_protocol_4(opcode);
  }
}

bool Machine::step_protocol_4(std::uint8_t opcode) {
  switch (opcode) {
    case op_FRAME:  // only a hint for buffering
      if (operand_.number <= static_cast<std::uint64_t>(end_ - at_)) return true;
      return fail_short(operand_.number);
    case op_SHORT_BINBYTES:
    case op_BINBYTES:
    case op_BINBYTES8:
      return push_text(Value::Kind::bytes, operand_.text);
    case op_BYTEARRAY8:
      return push_text(byte_array, operand_.text);
    case op_ADDITEMS:
      return extend_to_mark(set, &value::Object::elements);
    case op_FROZENSET:
      return container_to_mark(frozen_set);
    case op_STACK_GLOBAL:
      return stack_global();
    case op_NEWOBJ_EX:
      return call_with_keywords();
    default:
      return step_old_protocol(opcode);
  }
}

// Opcodes that only protocols 0 and 1 need, or that picklers use for recursive values.
bool Machine::step_old_protocol(std::uint8_t opcode) {
  switch (opcode) {
    case op_POP:
      return pop();
    case op_POP_MARK: {
      value::Cell* first = nullptr;
      std::uint32_t count = 0;
      return pop_mark(first, count);
    }
    case op_DUP: {
      value::Cell* first = nullptr;
      if (!top(1, first)) return false;
      const value::Cell copy = *first;
      return push(copy);
    }
    case op_LIST:
      return container_to_mark(list);
    case op_DICT:
      return container_to_mark(dict);
    case op_INST:
      return instance_of_name();
    case op_OBJ:
      return instance_of_first();
    case op_PERSID:
      return persistent_text();
    default:
      return step_text(opcode);
  }
}

bool Machine::refuse(std::uint8_t opcode) {
  const std::string name = opcode_name(opcode);
  if (name.front() != '0')
    return fail(ErrorCode::unsafe_pickle,
                "the pickle uses opcode " + name + ", which a checkpoint does not need");
  return fail(ErrorCode::corrupt, "the pickle has byte " + name + " where an opcode should be");
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
  stopped_ = is_inner_;
  if (is_inner_) return true;
  tree_.add_packed(memo_.packed_count());
  if (!parts_.empty()) return end_part();
  tree_.set_root(stack_[0]);
  tree_.cut_pickle(position(at_));
  stopped_ = true;
  return true;
}

// Only the result of the previous part is kept.
void Machine::begin_part() {
  at_ = begin_ + parts_.front().begin;
  end_ = begin_ + parts_.front().end;
  stack_size_ = 0;
  memo_ = Memo(arena_);
  headers_.clear();
  last_header_ = nullptr;
}

bool Machine::end_part() {
  if (at_ != end_)
    return fail(ErrorCode::corrupt,
                "the pickle stops " +
                    bytes::counted(static_cast<std::uint64_t>(end_ - at_), "byte") +
                    " before its end");
  const NamedPickle& part = parts_.front();
  const value::Cell item[] = {value::make_cell(string, part.name, part.name_length), stack_[0]};
  if (whole_ == nullptr && (whole_ = new_sequence()) == nullptr) return false;
  if (!extend(*whole_, dict, true, item, 2)) return false;
  parts_ = parts_.subspan(1);
  if (!parts_.empty()) {
    begin_part();
    return true;
  }
  tree_.set_root(value::make_cell(dict, whole_));
  stopped_ = true;
  return true;
}

bool Machine::grow_stack() {
  const std::size_t grown = std::max<std::size_t>(64, stack_.size() * 2);
  // The old and the new cells exist together while the vector grows.
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

bool Machine::pop() {
  if (stack_size_ > floor()) {
    --stack_size_;
    return true;
  }
  if (marks_.empty()) return fail(ErrorCode::corrupt, "opcode POP finds nothing on the stack");
  marks_.pop_back();
  return true;
}

bool Machine::push_text(Value::Kind kind, std::string_view text) {
  return push(value::make_cell(kind, tree_.position_of(text.data()),
                               static_cast<std::uint32_t>(text.size())));
}

bool Machine::push_unicode() {
  const std::string_view text = operand_.text;
  const std::size_t valid = bytes::valid_prefix(text);
  if (valid == text.size()) return push_text(string, text);
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has the text " +
                                      bytes::quote(text) + ", which is not UTF-8 at its byte " +
                                      std::to_string(valid));
}

// A Python 2 str becomes text if it is valid UTF-8.
bool Machine::push_python_2(std::string_view text) {
  if (!push_text(bytes::is_utf8(text) ? string : Value::Kind::bytes, text)) return false;
  stack_[stack_size_ - 1].depth = value::python_2_text;
  return true;
}

bool Machine::check_sign() {
  if (operand_.number <= 0x7FFFFFFF) return true;
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has a negative length");
}

bool Machine::push_long() {
  if (!check_sign()) return false;
  std::size_t length = operand_.text.size();
  const auto* const first = reinterpret_cast<const Byte*>(operand_.text.data());
  // Bytes that only repeat the sign do not change the number.
  while (length > 8 && first[length - 1] == ((first[length - 2] & 0x80) != 0 ? 0xFF : 0)) --length;
  if (length > 8) return push_text(big_integer, operand_.text.substr(0, length));
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < length; ++i) value |= std::uint64_t{first[i]} << (8 * i);
  const bool is_negative = length > 0 && (first[length - 1] & 0x80) != 0;
  if (is_negative && length < 8) value |= ~std::uint64_t{0} << (8 * length);
  return push(value::make_integer(static_cast<std::int64_t>(value)));
}

bool Machine::nest(const value::Cell* children, std::uint32_t count, std::uint32_t& depth) {
  return fits_depth(depth = deepest(children, count) + 1);
}

bool Machine::fits_depth(std::uint32_t depth) {
  if (depth <= limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool Machine::make_tuple(const value::Cell* first, std::uint32_t count, value::Cell& made) {
  made = value::make_cell(tuple, std::uint64_t{0});
  if (count == 0) return true;
  std::uint32_t depth = 0;
  return nest(first, count, depth) &&
         (value::make_tuple(arena_, first, count, depth, made) || fail_budget());
}

bool Machine::tuple_of(std::uint32_t count) {
  value::Cell* first = nullptr;
  value::Cell made;
  if (!top(count, first) || !make_tuple(first, count, made)) return false;
  stack_size_ -= count;
  return push(made);
}

bool Machine::tuple_to_mark() {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  value::Cell made;
  return pop_mark(first, count) && make_tuple(first, count, made) && push(made);
}

bool Machine::put(std::uint64_t id) {
  value::Cell* first = nullptr;
  if (!top(1, first)) return false;
  // A pickler counts its memo from zero, and each entry takes at least two bytes of the pickle.
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
  const value::Cell* found =
      id <= 0xFFFFFFFF ? memo_.get(static_cast<std::uint32_t>(id), scratch) : nullptr;
  if (found != nullptr) return push(*found);
  return fail(ErrorCode::corrupt, "memo id " + std::to_string(id) + " was never set");
}

Result<std::unique_ptr<value::Tree>> parse(bytes::Buffer pickle_memory,
                                           std::span<const std::byte> pickle,
                                           std::uint64_t file_offset, const ParseLimits& limits,
                                           std::pmr::memory_resource& memory,
                                           std::span<const NamedPickle> parts) {
  // A call and the cells that refer to it take about half of its bytes in the pickle.
  const std::size_t chunk_bytes = pickle.size() + pickle.size() / 8 + 4096;
  auto tree = std::make_unique<value::Tree>(std::move(pickle_memory), pickle, memory, chunk_bytes,
                                            limits.budget_bytes);
  constexpr bool little_endian = std::endian::native == std::endian::little;
  Machine machine(*tree, file_offset, limits,
                  little_endian ? Machine::Packing::on : Machine::Packing::off, parts);
  if (machine.run()) return tree;
  if (!machine.must_repack()) return tl::unexpected<Error>(machine.take_error());
  tree = std::make_unique<value::Tree>(std::move(*tree).release_pickle(), pickle, memory,
                                       chunk_bytes, limits.budget_bytes);
  Machine general(*tree, file_offset, limits, Machine::Packing::off, parts);
  if (general.run()) return tree;
  return tl::unexpected<Error>(general.take_error());
}

}  // namespace weightmap::pickle
