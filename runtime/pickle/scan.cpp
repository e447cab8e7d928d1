#include "runtime/pickle/scan.hpp"

#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "runtime/bytes/counted.hpp"
#include "runtime/pickle/opcode.hpp"

namespace weightmap::pickle {
namespace {

// What is known of a value: where its text stands, if it is one.
struct Known {
  std::uint32_t position;
  std::uint32_t length;
};
constexpr std::uint32_t no_length = std::numeric_limits<std::uint32_t>::max();
constexpr Known something{0, no_length};       // a value that is no text, or one that is not told
constexpr Known never_set{1, no_length};       // a memo id that was never set
constexpr std::size_t most_name_bytes = 4096;  // of a global, as parse() has it

bool is_set(const Known& known) noexcept {
  return known.length != no_length || known.position != never_set.position;
}

class GlobalScan {
 public:
  GlobalScan(std::span<const std::byte> pickle, std::uint64_t file_offset,
             std::uint64_t budget_bytes, const std::function<void(const ScannedGlobal&)>& found)
      : text_(reinterpret_cast<const char*>(pickle.data()), pickle.size()),
        file_offset_(file_offset),
        budget_bytes_(budget_bytes),
        found_(found) {}

  Scan run() && {
    while (!stopped_) {
      opcode_at_ = at_;
      if (at_ == text_.size() ? !fail_early("the pickle ends without a STOP opcode")
                              : !step(byte_at(at_++)))
        break;
    }
    scan_.length = stopped_ ? at_ : opcode_at_;
    return std::move(scan_);
  }

 private:
  // These answer false after noting a fault.
  bool step(std::uint8_t opcode);
  bool step_operand(std::uint8_t opcode);
  bool step_line(std::uint8_t opcode);
  bool step_name(std::uint8_t opcode);
  bool fail(std::string message);
  bool fail_early(std::string message) {
    scan_.ends_early = true;
    return fail(std::move(message));
  }

  std::uint8_t byte_at(std::size_t at) const noexcept {
    return static_cast<std::uint8_t>(text_[at]);
  }
  bool skip(std::uint64_t count);
  bool read_unsigned(unsigned width, std::uint64_t& value);
  bool read_line(std::string_view& line);

  bool check_budget();
  bool push(Known known) {
    stack_.push_back(known);
    return check_budget();
  }
  std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }
  bool pop(std::size_t count);
  bool pop_to_mark();
  bool replace(std::size_t count) { return pop(count) && push(something); }
  bool push_text(unsigned width);
  bool skip_counted(unsigned width) {
    std::uint64_t length = 0;
    return read_unsigned(width, length) && skip(length) && push(something);
  }
  bool push_line(std::string_view line);
  bool put(std::uint64_t id);
  bool get(std::uint64_t id);
  void note(std::string_view module, std::string_view of_it) {
    const bool is_told = module.size() <= most_name_bytes && of_it.size() <= most_name_bytes;
    found_(is_told ? ScannedGlobal{module, of_it, opcode_at_} : ScannedGlobal{{}, {}, opcode_at_});
  }
  bool stack_global();

  std::string_view text_;
  std::uint64_t file_offset_;
  std::uint64_t budget_bytes_;
  const std::function<void(const ScannedGlobal&)>& found_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::vector<Known> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Known> memo_;
  std::size_t memo_count_ = 0;  // ids that are set: what MEMOIZE takes
  bool stopped_ = false;
  Scan scan_;
};

bool GlobalScan::fail(std::string message) {
  scan_.fault = Error{ErrorCode::corrupt, std::move(message), file_offset_ + opcode_at_, {}};
  return false;
}

bool GlobalScan::check_budget() {
  // A vector that grows holds its old values and the new ones for a moment.
  const std::uint64_t bytes = (stack_.capacity() + memo_.capacity()) * sizeof(Known) * 3 / 2 +
                              marks_.capacity() * sizeof(std::size_t) * 3 / 2;
  if (bytes <= budget_bytes_) return true;
  fail("the names in the pickle need more memory than " + std::to_string(budget_bytes_) + " bytes");
  scan_.fault->code = ErrorCode::limit_exceeded;
  return false;
}

bool GlobalScan::skip(std::uint64_t count) {
  if (count > text_.size() - at_)
    return fail_early("opcode " + opcode_name(byte_at(opcode_at_)) + " needs " +
                      bytes::counted(count, "byte") + ", the pickle has " +
                      std::to_string(text_.size() - at_) + " left");
  at_ += count;
  return true;
}

bool GlobalScan::read_unsigned(unsigned width, std::uint64_t& value) {
  const std::size_t first = at_;
  if (!skip(width)) return false;
  value = 0;
  for (unsigned i = 0; i < width; ++i) value |= std::uint64_t{byte_at(first + i)} << (8 * i);
  return true;
}

bool GlobalScan::read_line(std::string_view& line) {
  const std::size_t end = text_.find('\n', at_);
  if (end == std::string_view::npos)
    return fail_early("opcode " + opcode_name(byte_at(opcode_at_)) + " has no newline behind it");
  line = text_.substr(at_, end - at_);
  at_ = end + 1;
  return true;
}

bool GlobalScan::pop(std::size_t count) {
  if (stack_.size() - floor() < count)
    return fail("opcode " + opcode_name(byte_at(opcode_at_)) + " needs " +
                bytes::counted(count, "value") + " above the last mark, found " +
                std::to_string(stack_.size() - floor()));
  stack_.resize(stack_.size() - count);
  return true;
}

bool GlobalScan::pop_to_mark() {
  if (marks_.empty())
    return fail("opcode " + opcode_name(byte_at(opcode_at_)) + " finds no mark on the stack");
  stack_.resize(marks_.back());
  marks_.pop_back();
  return true;
}

bool GlobalScan::push_text(unsigned width) {
  std::uint64_t length = 0;
  if (!read_unsigned(width, length)) return false;
  const auto position = static_cast<std::uint32_t>(at_);
  return skip(length) && push({position, static_cast<std::uint32_t>(length)});
}

// STRING and UNICODE, in which a backslash would have to be undone; no name has one.
bool GlobalScan::push_line(std::string_view line) {
  if (line.find('\\') != std::string_view::npos) return push(something);
  return push({static_cast<std::uint32_t>(line.data() - text_.data()),
               static_cast<std::uint32_t>(line.size())});
}

bool GlobalScan::put(std::uint64_t id) {
  if (stack_.size() == floor())
    return fail("opcode " + opcode_name(byte_at(opcode_at_)) + " finds nothing to keep");
  // As parse() has it: a pickler counts its memo from zero.
  if (id >= text_.size())
    return fail("memo id " + std::to_string(id) + " is larger than the pickle itself");
  if (id >= memo_.size()) memo_.resize(id + 1, never_set);
  if (!is_set(memo_[id])) ++memo_count_;
  memo_[id] = stack_.back();
  return check_budget();
}

bool GlobalScan::get(std::uint64_t id) {
  if (id >= memo_.size() || !is_set(memo_[id]))
    return fail("memo id " + std::to_string(id) + " was never set");
  return push(memo_[id]);
}

bool GlobalScan::stack_global() {
  if (stack_.size() - floor() < 2) return pop(2);
  const Known& module = stack_[stack_.size() - 2];
  const Known& of_it = stack_.back();
  if (module.length == no_length || of_it.length == no_length)
    note({}, {});
  else
    note(text_.substr(module.position, module.length), text_.substr(of_it.position, of_it.length));
  return replace(2);
}

bool GlobalScan::step(std::uint8_t opcode) {
  switch (opcode) {
    case op_MARK:
      marks_.push_back(stack_.size());
      return check_budget();
    case op_POP:
      if (!marks_.empty() && marks_.back() == stack_.size()) return pop_to_mark();
      return pop(1);
    case op_POP_MARK:
      return pop_to_mark();
    case op_DUP:
      if (stack_.size() == floor()) return pop(1);
      return push(stack_.back());
    case op_NONE:
    case op_NEWTRUE:
    case op_NEWFALSE:
    case op_EMPTY_TUPLE:
    case op_EMPTY_LIST:
    case op_EMPTY_DICT:
    case op_EMPTY_SET:
    case op_NEXT_BUFFER:
      return push(something);
    case op_READONLY_BUFFER:
    case op_BINPERSID:
    case op_TUPLE1:
      return replace(1);
    case op_REDUCE:
    case op_NEWOBJ:
    case op_TUPLE2:
      return replace(2);
    case op_NEWOBJ_EX:
    case op_TUPLE3:
      return replace(3);
    case op_APPEND:
    case op_BUILD:
      return pop(1);
    case op_SETITEM:
      return pop(2);
    case op_APPENDS:
    case op_SETITEMS:
    case op_ADDITEMS:
      return pop_to_mark();
    case op_TUPLE:
    case op_LIST:
    case op_DICT:
    case op_FROZENSET:
    case op_OBJ:
      return pop_to_mark() && push(something);
    case op_STOP:
      if (stack_.size() == floor()) return fail("the pickle stops with nothing on its stack");
      stopped_ = true;
      return true;
    default:
      return step_operand(opcode);
  }
}

bool GlobalScan::step_operand(std::uint8_t opcode) {
  std::uint64_t number = 0;
  switch (opcode) {
    case op_PROTO:
      if (!read_unsigned(1, number)) return false;
      return number <= 5 || fail("the pickle has protocol " + std::to_string(number));
    case op_FRAME:
      return skip(8);
    case op_BININT1:
      return skip(1) && push(something);
    case op_BININT2:
      return skip(2) && push(something);
    case op_BININT:
      return skip(4) && push(something);
    case op_BINFLOAT:
      return skip(8) && push(something);
    case op_LONG1:
    case op_SHORT_BINBYTES:
      return skip_counted(1);
    case op_LONG4:
    case op_BINBYTES:
      return skip_counted(4);
    case op_BINBYTES8:
    case op_BYTEARRAY8:
      return skip_counted(8);
    case op_SHORT_BINUNICODE:
    case op_SHORT_BINSTRING:
      return push_text(1);
    case op_BINUNICODE:
    case op_BINSTRING:
      return push_text(4);
    case op_BINUNICODE8:
      return push_text(8);
    case op_BINPUT:
      return read_unsigned(1, number) && put(number);
    case op_LONG_BINPUT:
      return read_unsigned(4, number) && put(number);
    case op_MEMOIZE:
      return put(memo_count_);
    case op_BINGET:
      return read_unsigned(1, number) && get(number);
    case op_LONG_BINGET:
      return read_unsigned(4, number) && get(number);
    default:
      return step_line(opcode);
  }
}

bool GlobalScan::step_line(std::uint8_t opcode) {
  std::string_view line;
  switch (opcode) {
    case op_INT:
    case op_LONG:
    case op_FLOAT:
    case op_PERSID:
      return read_line(line) && push(something);
    case op_UNICODE:
      return read_line(line) && push_line(line);
    case op_STRING:
      if (!read_line(line)) return false;
      if (line.size() < 2 || line.front() != line.back() ||
          (line.front() != '\'' && line.front() != '"'))
        return fail("opcode STRING has a text without quotes");
      return push_line(line.substr(1, line.size() - 2));
    case op_GET:
    case op_PUT: {
      if (!read_line(line)) return false;
      std::uint64_t id = 0;
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
      if (error != std::errc{} || end != line.data() + line.size())
        return fail("opcode " + opcode_name(opcode) + " has a memo id that is not a number");
      return opcode == op_GET ? get(id) : put(id);
    }
    default:
      return step_name(opcode);
  }
}

bool GlobalScan::step_name(std::uint8_t opcode) {
  std::string_view module;
  std::string_view of_it;
  switch (opcode) {
    case op_GLOBAL:
      if (!read_line(module) || !read_line(of_it)) return false;
      note(module, of_it);
      return push(something);
    case op_INST:
      if (!read_line(module) || !read_line(of_it)) return false;
      note(module, of_it);
      return pop_to_mark() && push(something);
    case op_STACK_GLOBAL:
      return stack_global();
    case op_EXT1:
    case op_EXT2:
    case op_EXT4:
      note({}, {});
      return skip(opcode == op_EXT1 ? 1 : opcode == op_EXT2 ? 2 : 4) && push(something);
    default:
      return fail("the pickle has byte " + opcode_name(opcode) + " where an opcode should be");
  }
}

}  // namespace

Scan scan_globals(std::span<const std::byte> pickle, std::uint64_t file_offset,
                  std::uint64_t budget_bytes,
                  const std::function<void(const ScannedGlobal&)>& found) {
  return GlobalScan(pickle, file_offset, budget_bytes, found).run();
}

}  // namespace weightmap::pickle
