// The pickle machine: one pass over the opcodes with a stack, a stack of marks and a memo.
//
// General handlers cover every opcode. Beside them, match_call() (packed_match.cpp) recognises the
// run of opcodes that a pickler writes for nearly every tensor and keeps it as one PackedCall; on
// any difference it leaves everything as it was and the general handlers go on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/pickle/call_templates.hpp"
#include "runtime/pickle/memo.hpp"
#include "runtime/pickle/parse.hpp"
#include "runtime/value/packed_shapes.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

class Machine {
 public:
  enum class Packing : bool { off, on };
  Machine(value::Tree& tree, std::uint64_t file_offset, const ParseLimits& limits, Packing packing);

  // Runs to STOP and sets the tree's root. An error is in error(); if must_repack() is true, a PUT
  // went back to an id that a packed call holds, and the pickle has to be run again without
  // packing.
  bool run();
  bool must_repack() const noexcept { return must_repack_; }
  Error take_error() noexcept { return std::move(error_); }

 private:
  using Byte = unsigned char;

  // Handlers return false after fail(); run() then stops.
  bool step(std::uint8_t opcode);
  bool step_protocol_4(std::uint8_t opcode);
  [[gnu::cold]] bool refuse(std::uint8_t opcode);
  [[gnu::cold]] bool fail(ErrorCode code, std::string message);
  [[gnu::cold]] bool fail_budget();
  bool stop();

  // Operands. Each returns false (after fail) if the stream ends first.
  bool need(std::uint64_t count);
  bool read_unsigned(unsigned width, std::uint64_t& value);
  bool read_line(std::string_view& line);

  bool push(const value::Cell& cell) {
    if (stack_size_ == stack_.size() && !grow_stack()) return false;
    stack_[stack_size_++] = cell;
    return true;
  }
  bool grow_stack();
  // The topmost `count` cells above the last mark; false (after fail) if there are fewer.
  bool top(std::uint32_t count, value::Cell*& first);
  // Everything above the last mark, and the mark itself taken off.
  bool pop_mark(value::Cell*& first, std::uint32_t& count);
  std::uint32_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  bool push_text(Value::Kind kind, unsigned length_width);
  bool push_long(unsigned length_width);
  bool push_int(unsigned width, bool is_signed);
  bool push_float();
  bool push_container(Value::Kind kind);
  bool push_tuple(value::Cell* first, std::uint32_t count);
  bool tuple_of(std::uint32_t count);
  bool tuple_to_mark();
  bool frozenset();

  bool global();
  bool stack_global();
  bool push_global(std::string_view module, std::string_view name);
  bool make_object(bool is_new_object);
  bool persistent_id();
  bool build();

  // APPEND, APPENDS, ADDITEMS, SETITEM and SETITEMS: `first[0..count)` go into the cell below them.
  bool append_top();
  bool set_top();
  bool extend_to_mark(Value::Kind plain, value::Sequence* value::Object::*of_object);
  bool extend(value::Cell& container, Value::Kind plain, value::Sequence* value::Object::*of_object,
              const value::Cell* first, std::uint32_t count);
  bool extend(value::Sequence& sequence, const value::Cell* first, std::uint32_t count);
  value::Sequence* new_sequence();  // nullptr (after fail) if the budget is spent
  // True (with must_repack_) if the cell is a piece of a packed call, which cannot be changed.
  bool is_packed(const value::Cell& cell);

  bool put(std::uint64_t id);
  bool get(std::uint64_t id);

  // Packed calls. `name_length` is that of a string operand at `at_`, or no_name.
  static constexpr std::uint32_t no_name = value::PackedCall::no_name;
  bool match_named_call();
  bool match_call(const Byte* start, std::uint32_t name_length);
  bool repeat_call(const Byte* start, std::uint32_t name_length);  // by a template
  bool scan_call(const Byte* start, std::uint32_t name_length);
  void add_template(const ScannedRun& run, const value::PackedShape& shape);
  bool keep_call(const value::PackedCall& call, const Byte* end, std::uint32_t next_id);
  const value::PackedHeader* header_for(const value::PackedHeader::Ids& ids);
  value::PackedHeader* make_header(const value::PackedHeader::Ids& ids);

  // One more than the deepest of `children`; false (after fail) beyond the limit.
  bool nest(const value::Cell* children, std::uint32_t count, std::uint32_t& depth);

  std::uint32_t position(const Byte* at) const noexcept {
    return static_cast<std::uint32_t>(at - begin_);
  }

  value::Tree& tree_;
  bytes::Arena& arena_;
  const Byte* const begin_;
  const Byte* const end_;
  const Byte* at_;         // next byte
  const Byte* opcode_at_;  // the opcode being run
  std::uint64_t file_offset_;
  ParseLimits limits_;
  Packing packing_;
  std::vector<value::Cell> stack_;  // stack_.size() is the capacity in use
  std::uint32_t stack_size_ = 0;
  std::vector<std::uint32_t> marks_;
  Memo memo_;
  CallTemplates* templates_ = nullptr;  // made when a run is long enough for them
  std::vector<value::PackedHeader*> headers_;
  const value::PackedHeader* last_header_ = nullptr;
  value::PackedShapes shapes_;
  bool stopped_ = false;
  bool must_repack_ = false;
  Error error_;
};

}  // namespace weightmap::pickle
