// Containers and their later additions.
#include <algorithm>

#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

}  // namespace

value::Sequence* Machine::new_sequence() {
  value::Sequence* sequence = value::make_sequence(arena_);
  if (sequence == nullptr) fail_budget();
  return sequence;
}

bool Machine::push_container(Value::Kind kind) {
  value::Sequence* sequence = new_sequence();
  return sequence != nullptr && push(value::make_cell(kind, sequence));
}

bool Machine::container_to_mark(Value::Kind kind) {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  if (!pop_mark(first, count) || (kind == dict && !check_pairs(count))) return false;
  value::Sequence* sequence = new_sequence();
  return sequence != nullptr && extend(*sequence, kind, kind != list, first, count) &&
         push(value::make_cell(kind, sequence));
}

bool Machine::check_pairs(std::uint32_t count) {
  if (count % 2 == 0) return true;
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has " +
                                      std::to_string(count) +
                                      " values, expected pairs of key and value");
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
  if (plain == dict && !check_pairs(count)) return false;
  return extend(stack_[stack_size_ - 1], plain, of_object, first, count);
}

bool Machine::extend(value::Cell& container, Value::Kind plain,
                     value::Sequence* value::Object::*of_object, const value::Cell* first,
                     std::uint32_t count) {
  if (is_packed(container)) return false;
  if (kind_of(container) == plain)
    return extend(*target_of<value::Sequence>(container), plain, plain != list, first, count);
  if (kind_of(container) == object) {
    value::Object& changed = *target_of<value::Object>(container);
    value::Sequence*& sequence = changed.*of_object;
    if (sequence == nullptr) sequence = new_sequence();
    if (sequence == nullptr || !extend(*sequence, plain, false, first, count)) return false;
    changed.depth = std::max(changed.depth, sequence->depth);
    changed.changed_at = sequence->changed_at;
    return true;
  }
  return fail(ErrorCode::unsafe_pickle, "opcode " + opcode_name(*opcode_at_) + " changes " +
                                            describe(container) + ", expected " +
                                            with_article(plain));
}

bool Machine::extend(value::Sequence& sequence, Value::Kind kind, bool is_hashed,
                     const value::Cell* first, std::uint32_t count) {
  std::uint32_t depth = 0;
  if (kind == dict ? !nest_items(first, count, is_hashed, depth)
                   : (is_hashed && !check_keys(first, count, 1)) || !nest(first, count, depth))
    return false;
  return value::extend(arena_, sequence, first, count, depth, position(opcode_at_)) ||
         fail_budget();
}

// Nearly all cells are texts and packed calls.
bool Machine::nest_items(const value::Cell* first, std::uint32_t count, bool is_hashed,
                         std::uint32_t& depth) {
  bool has_other_keys = false;
  bool has_packed = false;
  depth = 0;
  for (const value::Cell* item = first; item != first + count; item += 2) {
    has_other_keys |= kind_of(item[0]) != string;
    if (item[1].part != value::whole_value)
      has_packed = true;
    else
      depth = std::max(depth, value::depth_of(item[1]));
  }
  if (has_packed) depth = std::max(depth, value::packed_depth);
  if (!has_other_keys) return fits_depth(++depth);
  return (!is_hashed || check_keys(first, count, 2)) && nest(first, count, depth);
}

bool Machine::check_keys(const value::Cell* first, std::uint32_t count, std::uint32_t step) {
  for (std::uint32_t i = 0; i < count; i += step)
    if (!may_be_key(kind_of(first[i])))
      return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " puts " +
                                          describe(first[i]) +
                                          (step == 1 ? " into a set" : " as a key into a dict") +
                                          ", where no reader can have one");
  return true;
}

bool Machine::is_packed(const value::Cell& cell) {
  if (cell.part == value::whole_value) return false;
  must_repack_ = true;
  return true;
}

}  // namespace weightmap::pickle
