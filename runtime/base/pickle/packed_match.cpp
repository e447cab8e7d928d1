// Fast path for the usual run of opcodes, by which a pickler writes one more tensor.
//
// After the first tensor of a file, whose globals and fixed strings are new, every further one is
//
//   [BINUNICODE name PUT]  GET callable  MARK MARK
//     GET tag  GET type  (BINUNICODE key PUT | GET key)  GET location  int numel  TUPLE PUT
//   BINPERSID  int offset  sizes  strides  bool  GET hooks_callable EMPTY_TUPLE REDUCE PUT
//   [GET extra]  TUPLE PUT  REDUCE PUT
//
// where sizes and strides are EMPTY_TUPLE, or ints TUPLE1..3 PUT, or MARK ints TUPLE PUT with at
// least one int; PUT and GET come in two widths, ints in four. One straight piece of code
// recognises it, about ten times faster than 30 steps of the machine. It commits only when the
// whole run has matched.
#include <cstring>

#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/opcode.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;
using Byte = unsigned char;

constexpr std::uint32_t max_dims = value::PackedShape::max_dims;
constexpr std::ptrdiff_t max_ids = 8;  // of one run: the name's and those of its call
constexpr std::uint32_t max_key_bytes = 64;
constexpr std::uint32_t least_long_id = 256;  // picklers write four bytes from here on
// Longer than any run of this form behind its name. The scanner checks no bounds, so it needs these
// bytes.
constexpr std::ptrdiff_t run_bytes_max = 1024;

// Reads the operands of one run. `ok` is sticky; after a mismatch it stays within the run's bound.
struct Scanner {
  Scanner(const Byte* start, std::uint32_t id) noexcept : at(start), next_id(id) {}

  const Byte* at;
  std::uint32_t next_id;  // the required id of the next PUT
  bool ok = true;

  template <class T>
  static T load(const Byte* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;  // little-endian; parse() packs only on little-endian machines
  }

  void expect(std::uint8_t opcode) noexcept { ok &= *at++ == opcode; }

  bool accept(std::uint8_t opcode) noexcept {
    if (*at != opcode) return false;
    ++at;
    return true;
  }

  std::uint32_t get() noexcept {
    if (*at == op_BINGET) {
      at += 2;
      return at[-1];
    }
    ok &= *at == op_LONG_BINGET;
    at += 5;
    return load<std::uint32_t>(at - 4);
  }

  void put() noexcept {
    const std::uint32_t id = next_id++;
    if (id >= least_long_id) {
      ok &= *at == op_LONG_BINPUT && load<std::uint32_t>(at + 1) == id;
      at += 5;
    } else {
      ok &= at[0] == op_BINPUT && at[1] == id;
      at += 2;
    }
  }

  std::int64_t integer() noexcept {
    const Byte* operand = at + 1;
    switch (*at) {
      case op_BININT1:
        at += 2;
        return *operand;
      case op_BININT2:
        at += 3;
        return load<std::uint16_t>(operand);
      case op_BININT:
        at += 5;
        return load<std::int32_t>(operand);
      default:
        return long_integer();
    }
  }

  // Reads LONG1 of up to eight bytes, for values beyond 32 bits.
  std::int64_t long_integer() noexcept {
    const unsigned length = at[1];
    ok &= *at == op_LONG1 && length >= 1 && length <= 8;
    if (!ok) return 0;
    const std::uint64_t low = load<std::uint64_t>(at + 2);  // may read unused bytes behind it
    const unsigned spare = 64 - 8 * length;
    at += 2 + length;
    return static_cast<std::int64_t>(low << spare) >> spare;
  }

  // Fills `dims` and returns their count. A PUT follows unless the tuple is empty. An empty tuple
  // spelled MARK TUPLE PUT has a memo id, which a PackedCall lacks: no match.
  std::uint8_t tuple_of_integers(std::int64_t* dims) noexcept {
    if (accept(op_EMPTY_TUPLE)) return 0;
    const bool marked = accept(op_MARK);
    std::uint8_t count = 0;
    while (count < max_dims) {
      if (*at == op_BININT1) {  // nearly always
        dims[count++] = at[1];
        at += 2;
      } else if (ok && is_integer(*at)) {
        dims[count++] = integer();
      } else {
        break;
      }
    }
    if (marked)
      ok &= count >= 1 && *at++ == op_TUPLE;
    else
      ok &= count >= 1 && count <= 3 && *at++ == op_TUPLE1 + count - 1;
    put();
    return count;
  }

  static bool is_integer(Byte opcode) noexcept {
    return opcode == op_BININT1 || opcode == op_BININT2 || opcode == op_BININT ||
           opcode == op_LONG1;
  }
};

}  // namespace

bool Machine::match_named_call() {
  // at_ is behind the opcode: a 4-byte length, the name and PUT follow, then the call's first GET.
  const std::ptrdiff_t left = end_ - at_;
  if (left < run_bytes_max) return false;
  const auto length = Scanner::load<std::uint32_t>(at_);
  if (length > static_cast<std::uint64_t>(left - run_bytes_max)) return false;
  const Byte* put = at_ + 4 + length;
  const Byte* call = put + (*put == op_BINPUT ? 2 : 5);
  if (*call != op_BINGET && *call != op_LONG_BINGET) return false;
  return match_call(call, length);
}

bool Machine::match_call(const Byte* start, std::uint32_t name_length) {
  if (end_ - start < run_bytes_max) return false;
  if (memo_.next_id() + max_ids > end_ - begin_) return false;  // put() may refuse an id
  const Byte* marks = start + (*start == op_BINGET ? 2 : 5);
  if (marks[0] != op_MARK || marks[1] != op_MARK) return false;
  return scan_call(start, name_length);
}

bool Machine::has_valid_texts(const value::PackedCall& call) const {
  const auto is_valid = [this](std::uint32_t position, std::uint32_t length) {
    return bytes::valid_prefix(tree_.text(position, length)) == length;
  };
  return (!call.has_name() || is_valid(call.name_position(), call.name_length)) &&
         is_valid(call.key_position, call.key_length);
}

// Inlined because it runs for each tensor.
[[gnu::always_inline]] inline bool Machine::keep_call(const value::PackedCall& call,
                                                      const Byte* end, std::uint32_t next_id) {
  // The general handlers report texts that are not UTF-8.
  if (!has_valid_texts(call)) return false;
  value::PackedCall* const kept = memo_.add_packed();
  // If the budget is spent, the general handlers exceed it, too, and report it.
  if (kept == nullptr || (stack_.size() - stack_size_ < 2 && !grow_stack())) return false;
  *kept = call;
  if (call.has_name())
    stack_[stack_size_++] =
        value::make_cell(string, std::uint64_t{call.name_position()}, call.name_length);
  stack_[stack_size_++] = value::make_cell(object, kept, 0, value::packed_object);
  memo_.commit_packed(next_id - call.memo_base);
  at_ = end;
  return true;
}

bool Machine::scan_call(const Byte* start, std::uint32_t name_length) {
  value::PackedCall call{};
  call.memo_base = memo_.next_id();
  call.position = position(opcode_at_);
  call.name_length = name_length;
  Scanner scan{start, call.memo_base};
  if (call.has_name()) {
    scan.at = at_ + 4 + name_length;
    scan.put();
  }
  value::PackedShape shape{};
  std::int64_t dims[2 * max_dims];
  value::PackedHeader::Ids ids;
  ids.callable = scan.get();
  scan.at += 2;  // the two marks
  ids.tag = scan.get();
  ids.type = scan.get();
  call.has_key_put = *scan.at == op_BINUNICODE;
  if (call.has_key_put) {
    const auto length = Scanner::load<std::uint32_t>(scan.at + 1);
    if (length > max_key_bytes) return false;
    call.key_position = position(scan.at) + 5;
    call.key_length = static_cast<std::uint16_t>(length);
    scan.at += 5 + length;
    scan.put();
  } else {
    const std::uint32_t key_id = scan.get();
    value::Cell scratch;
    const value::Cell* key = scan.ok ? memo_.get(key_id, scratch) : nullptr;
    if (key == nullptr || kind_of(*key) != string || key->count > max_key_bytes ||
        !tree_.is_in_pickle(key->payload))
      return false;
    call.key_position = static_cast<std::uint32_t>(key->payload);
    call.key_length = static_cast<std::uint16_t>(key->count);
  }
  ids.location = scan.get();
  shape.numel = scan.integer();
  scan.expect(op_TUPLE);
  scan.put();
  scan.expect(op_BINPERSID);
  shape.storage_offset = scan.integer();
  if (!scan.ok) return false;
  shape.size_count = scan.tuple_of_integers(dims);
  if (!scan.ok) return false;
  shape.stride_count = scan.tuple_of_integers(dims + shape.size_count);
  call.requires_grad = *scan.at == op_NEWTRUE;
  scan.ok &= *scan.at == op_NEWTRUE || *scan.at == op_NEWFALSE;
  ++scan.at;
  ids.hooks_callable = scan.get();
  scan.expect(op_EMPTY_TUPLE);
  scan.expect(op_REDUCE);
  scan.put();
  const bool has_extra = *scan.at == op_BINGET || *scan.at == op_LONG_BINGET;
  ids.extra = has_extra ? scan.get() : value::PackedHeader::no_id;
  scan.expect(op_TUPLE);
  scan.put();
  scan.expect(op_REDUCE);
  scan.put();
  if (!scan.ok) return false;

  shape.header = last_header_ && last_header_->ids == ids ? last_header_ : header_for(ids);
  if (shape.header == nullptr) return false;
  last_header_ = shape.header;
  shape.dims = dims;
  call.shape = shapes_.keep(shape);
  if (call.shape == nullptr) return false;
  return keep_call(call, scan.at, scan.next_id);
}

const value::PackedHeader* Machine::header_for(const value::PackedHeader::Ids& ids) {
  for (const value::PackedHeader* known : headers_)
    if (known->ids == ids) return known;
  constexpr std::size_t max_headers = 64;  // dtypes x locations x rebuild functions of one file
  return headers_.size() < max_headers ? make_header(ids) : nullptr;
}

value::PackedHeader* Machine::make_header(const value::PackedHeader::Ids& ids) {
  const auto lookup = [this](std::uint32_t id, Value::Kind kind, value::Cell& cell) {
    value::Cell scratch;
    const value::Cell* found = memo_.get(id, scratch);
    if (found == nullptr || kind_of(*found) != kind) return false;
    cell = *found;
    return true;
  };
  value::PackedHeader header{ids, {}, {}, {}, {}, {}, {}};
  constexpr Value::Kind named = Value::Kind::global;
  if (!lookup(ids.callable, named, header.callable) || !lookup(ids.tag, string, header.tag) ||
      !lookup(ids.type, named, header.type) || !lookup(ids.location, string, header.location) ||
      !lookup(ids.hooks_callable, named, header.hooks_callable))
    return nullptr;
  if (ids.extra != value::PackedHeader::no_id && !lookup(ids.extra, named, header.extra))
    return nullptr;
  auto* kept = arena_.allocate<value::PackedHeader>();
  if (kept == nullptr) return nullptr;
  *kept = header;
  headers_.push_back(kept);
  return kept;
}

}  // namespace weightmap::pickle
