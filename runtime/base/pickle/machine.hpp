// The pickle machine: one pass over the opcodes with a stack, a stack of marks and a memo.
//
// General handlers cover every opcode (machine.cpp; calls, containers and the text of protocol 0
// are in files of their own). In addition, match_call() (packed_match.cpp) recognises the run of
// opcodes that a pickler writes for nearly every tensor and keeps it as one PackedCall. On any
// difference it changes nothing, and the general handlers are the fallback.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/pickle/memo.hpp"
#include "runtime/base/pickle/operand.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/value/packed_shapes.hpp"
#include "runtime/base/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

class Machine {
 public:
  enum class Packing : bool { off, on };
  // `parts` must outlive the machine; see parse().
  Machine(value::Tree& tree, std::uint64_t file_offset, const ParseLimits& limits, Packing packing,
          std::span<const NamedPickle> parts = {});

  // Runs to STOP and sets the tree's root. Returns false with an error in error(). If must_repack()
  // is true, a PUT reused an id of a packed call, and the caller starts again without packing.
  bool run();
  bool must_repack() const noexcept { return must_repack_; }
  Error take_error() noexcept { return std::move(error_); }

 private:
  using Byte = unsigned char;
  static constexpr std::size_t max_name_bytes = 4096;    // a line of GLOBAL, INST or PERSID
  static constexpr std::size_t max_number_bytes = 4302;  // 4,300 digits, a sign and an L

  // Handlers return false after fail(); run() then stops.
  bool read_operand(std::uint8_t opcode);
  [[gnu::cold]] bool fail_operand(const MemoryOperands& source);
  [[gnu::cold]] bool fail_short(std::uint64_t needed);
  bool step(std::uint8_t opcode);
  bool step_protocol_4(std::uint8_t opcode);
  bool step_old_protocol(std::uint8_t opcode);
  bool step_text(std::uint8_t opcode);
  [[gnu::cold]] bool refuse(std::uint8_t opcode);
  [[gnu::cold]] bool fail(ErrorCode code, std::string message);
  [[gnu::cold]] bool fail_budget();
  [[gnu::cold]] static std::string describe(const value::Cell& cell) {
    return with_article(kind_of(cell));
  }
  bool stop();
  [[gnu::cold]] void begin_part();
  [[gnu::cold]] bool end_part();

  bool push(const value::Cell& cell) {
    if (stack_size_ == stack_.size() && !grow_stack()) return false;
    stack_[stack_size_++] = cell;
    return true;
  }
  bool grow_stack();
  // Finds the topmost `count` cells above the last mark; false (after fail) if there are fewer.
  bool top(std::uint32_t count, value::Cell*& first);
  // Finds all cells above the last mark and removes the mark.
  bool pop_mark(value::Cell*& first, std::uint32_t& count);
  std::uint32_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  bool pop();

  // `text` lies in the pickle or in the arena.
  bool push_text(Value::Kind kind, std::string_view text);
  bool push_unicode();
  bool push_python_2(std::string_view text);
  bool push_long();
  bool check_sign();  // of a length of four bytes, which Python reads as signed

  // Operands of protocol 0, which are lines of text (machine_text.cpp).
  bool push_int_line();
  bool push_long_line();
  bool push_decimal(std::string_view digits);
  bool push_float_line();
  bool push_string_line();
  bool push_unicode_line();
  bool put_line();
  bool get_line();
  std::optional<std::uint64_t> id_of_line();  // nullopt after fail
  [[gnu::cold]] bool fail_line(std::string_view line, const char* expected);

  bool push_container(Value::Kind kind);
  bool make_tuple(const value::Cell* first, std::uint32_t count, value::Cell& made);
  bool tuple_of(std::uint32_t count);
  bool tuple_to_mark();
  bool container_to_mark(Value::Kind kind);

  bool make_global(std::string_view module, std::string_view name, value::Cell& cell);
  bool global();
  bool stack_global();
  bool check_callable(const value::Cell& callable);
  bool check_kind(const value::Cell& cell, Value::Kind kind, const char* role);
  bool make_object(const value::Cell& callable, const value::Cell& arguments, bool is_new_object,
                   value::Cell& made);
  // Makes the object if the call is one of a dict with what it shall hold; else leaves `made`.
  bool make_filled_dict(const value::Cell& callable, const value::Cell& arguments,
                        value::Cell& made);
  // Makes bytes or a bytearray if the call is an older protocol's way to write them.
  bool make_bytes(const value::Cell& callable, const value::Cell& arguments, value::Cell& made);
  bool call(bool is_new_object);
  bool call_with_keywords();
  bool instance(const value::Cell& type, const value::Cell* first, std::uint32_t count);
  bool instance_of_name();
  bool instance_of_first();
  bool push_persistent_id(const value::Cell& id);
  bool persistent_id();
  std::optional<value::Cell> class_of(const value::Cell& id) const;
  bool persistent_text();
  bool build();

  // Arrays of numpy (machine_arrays.cpp).
  static void read_numpy_bytes(const value::Cell& callable, const value::Cell& arguments);
  bool finish_array(value::Object& built);
  bool take_objects();
  std::optional<std::uint64_t> element_bytes(const value::Cell& dtype) const;
  bool take_elements(bool is_padded, std::uint64_t length, value::Cell& elements);
  bool become_array(value::Object& built, const value::Cell& subclass, const value::Cell& shape,
                    const value::Cell& dtype, bool is_fortran, const value::Cell& elements);
  [[gnu::cold]] bool fail_array(ErrorCode code, std::string_view why);

  // APPEND, APPENDS, ADDITEMS, SETITEM and SETITEMS add `first[0..count)` to the cell below them.
  bool append_top();
  bool set_top();
  bool extend_to_mark(Value::Kind plain, value::Sequence* value::Object::*of_object);
  bool extend(value::Cell& container, Value::Kind plain, value::Sequence* value::Object::*of_object,
              const value::Cell* first, std::uint32_t count);
  // `kind` is the kind of the sequence. `is_hashed` is true for a set or dict that is not an
  // object's, whose elements or keys must be hashable.
  bool extend(value::Sequence& sequence, Value::Kind kind, bool is_hashed, const value::Cell* first,
              std::uint32_t count);
  bool check_pairs(std::uint32_t count);
  // Checks each `step`th cell, which is a key or an element of a set.
  bool check_keys(const value::Cell* first, std::uint32_t count, std::uint32_t step);
  value::Sequence* new_sequence();  // nullptr (after fail) if the budget is spent
  // Returns true (and sets must_repack_) for a piece of a packed call, which cannot be changed.
  bool is_packed(const value::Cell& cell);

  bool put(std::uint64_t id);
  bool get(std::uint64_t id);

  // Packed calls. `name_length` is the length of a string operand at `at_`, or no_name.
  static constexpr std::uint32_t no_name = value::PackedCall::no_name;
  bool match_packed(std::uint8_t opcode);
  bool match_named_call();
  bool match_call(const Byte* start, std::uint32_t name_length);
  bool scan_call(const Byte* start, std::uint32_t name_length);
  bool has_valid_texts(const value::PackedCall& call) const;
  bool keep_call(const value::PackedCall& call, const Byte* end, std::uint32_t next_id);
  const value::PackedHeader* header_for(const value::PackedHeader::Ids& ids);
  value::PackedHeader* make_header(const value::PackedHeader::Ids& ids);

  // Computes one more than the deepest of `children`; returns false (after fail) beyond the limit.
  bool nest(const value::Cell* children, std::uint32_t count, std::uint32_t& depth);
  // Does the same for keys and values, and checks the keys of a dict.
  bool nest_items(const value::Cell* first, std::uint32_t count, bool is_hashed,
                  std::uint32_t& depth);
  bool fits_depth(std::uint32_t depth);

  std::uint32_t position(const Byte* at) const noexcept {
    return static_cast<std::uint32_t>(at - begin_);
  }

  value::Tree& tree_;
  bytes::Arena& arena_;
  const Byte* const begin_;
  const Byte* end_;        // of the current part
  const Byte* at_;         // next byte
  const Byte* opcode_at_;  // the opcode being run
  Operand operand_;        // of that opcode
  std::uint64_t file_offset_;
  ParseLimits limits_;
  Packing packing_;
  std::span<const NamedPickle> parts_;  // the current part is the first
  value::Sequence* whole_ = nullptr;    // the dict of all parts
  std::vector<value::Cell> stack_;      // stack_.size() is the capacity in use
  std::uint32_t stack_size_ = 0;
  std::vector<std::uint32_t> marks_;
  Memo memo_;
  std::vector<value::PackedHeader*> headers_;
  const value::PackedHeader* last_header_ = nullptr;
  value::PackedShapes shapes_;
  bool stopped_ = false;
  bool is_inner_ = false;  // the pickle lies within another one
  bool must_repack_ = false;
  Error error_;
};

// False for what Python cannot hash, whatever is in it.
inline bool may_be_key(Value::Kind kind) noexcept {
  using enum Value::Kind;
  return kind != list && kind != dict && kind != set && kind != byte_array;
}

}  // namespace weightmap::pickle
