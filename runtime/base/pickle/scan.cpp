#include "runtime/base/pickle/scan.hpp"

#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/pickle/operand.hpp"

namespace weightmap::pickle {
namespace {

// The known part of a value: the position of its text, if it is one.
struct Known {
  std::uint32_t position;
  std::uint32_t length;
};
constexpr std::uint32_t no_length = std::numeric_limits<std::uint32_t>::max();
constexpr Known something{0, no_length};       // a value that is no text, or is unknown
constexpr Known never_set{1, no_length};       // a memo id that was never set
constexpr Known from_name{2, no_length};       // what a name is, or a call of one gave
constexpr Known unread_text{3, no_length};     // with an escape, which no name needs
constexpr std::size_t most_name_bytes = 4096;  // of a global, as in parse()

bool is_set(const Known& known) noexcept {
  return known.length != no_length || known.position != never_set.position;
}

bool is_something(const Known& known) noexcept {
  return known.length == no_length && known.position == something.position;
}

bool is_made(const Known& known) noexcept {
  return known.length == no_length && known.position == from_name.position;
}

// False for what Python takes for no number in any notation; it reads up to a zero byte.
bool may_be_number(std::string_view line) noexcept {
  return line.substr(0, line.find('\0'))
             .find_first_not_of("0123456789abcdefABCDEFxXoOlLinftyINFTY_+-. \t\r\v\f") ==
         std::string_view::npos;
}

// As int() of Python takes it, or more: readers must not stop before this one does.
std::optional<std::uint64_t> read_id(std::string_view line) {
  std::string digits(line.substr(0, line.find('\0')));
  std::erase_if(digits, [](char c) { return c == '_' || c == '+' || (c >= '\t' && c <= ' '); });
  if (digits.starts_with("-0")) digits.erase(0, 1);
  return bytes::number(digits);
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
                              : !read_operand() || !step(byte_at(opcode_at_)))
        break;
    }
    scan_.length = stopped_ ? at_ : opcode_at_;
    return std::move(scan_);
  }

 private:
  // These return false after setting a fault.
  bool read_operand();
  bool step(std::uint8_t opcode);
  bool step_operand(std::uint8_t opcode);
  bool fail(std::string message);
  bool fail_early(std::string message) {
    scan_.ends_early = true;
    return fail(std::move(message));
  }

  std::uint8_t byte_at(std::size_t at) const noexcept {
    return static_cast<std::uint8_t>(text_[at]);
  }
  bool check_budget();
  bool push(Known known) {
    stack_.push_back(known);
    return check_budget();
  }
  std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }
  bool pop(std::size_t count);
  bool pop_to_mark();
  bool replace(std::size_t count) { return pop(count) && push(something); }
  bool call(std::size_t count);
  bool push_text(std::string_view text);
  bool push_line();
  Known& memo_at(std::uint64_t id) {
    if (id >= text_.size()) return far_memo_.try_emplace(id, never_set).first->second;
    if (id >= memo_.size()) memo_.resize(id + 1, never_set);
    return memo_[id];
  }
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
  Operand operand_;  // of that opcode
  std::vector<Known> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Known> memo_;
  std::unordered_map<std::uint64_t, Known> far_memo_;  // of ids that no pickler writes
  std::size_t memo_count_ = 0;  // number of ids that are set, which MEMOIZE takes
  bool stopped_ = false;
  Scan scan_;
};

bool GlobalScan::fail(std::string message) {
  scan_.fault = Error{ErrorCode::corrupt, std::move(message), file_offset_ + opcode_at_, {}};
  return false;
}

bool GlobalScan::check_budget() {
  // The old and the new values exist together while a vector grows.
  const std::uint64_t bytes = (stack_.capacity() + memo_.capacity()) * sizeof(Known) * 3 / 2 +
                              marks_.capacity() * sizeof(std::size_t) * 3 / 2 +
                              far_memo_.size() * sizeof(std::size_t) * 8;
  if (bytes <= budget_bytes_) return true;
  fail("the names in the pickle need more memory than " + std::to_string(budget_bytes_) + " bytes");
  scan_.fault->code = ErrorCode::limit_exceeded;
  return false;
}

bool GlobalScan::read_operand() {
  const std::uint8_t opcode = byte_at(at_++);
  const OperandForm form = operand_forms[opcode];
  if (form.kind == OperandKind::extension) note({}, {});
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text_.data());
  MemoryOperands source(bytes + at_, bytes + text_.size());
  const bool is_read = pickle::read_operand(source, form, operand_);
  at_ = text_.size() - source.left();
  if (is_read) return true;
  const bool is_counted = source.needed > source.left();
  scan_.needs = is_counted ? at_ + source.needed : text_.size() + 1;
  return fail_early(is_counted ? short_of(opcode, source.needed, source.left())
                               : "opcode " + opcode_name(opcode) + " has no newline behind it");
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

bool GlobalScan::push_text(std::string_view text) {
  return push({static_cast<std::uint32_t>(text.data() - text_.data()),
               static_cast<std::uint32_t>(text.size())});
}

// STRING and UNICODE. A backslash would need decoding, but no name has one.
bool GlobalScan::push_line() {
  std::string_view line = operand_.text;
  if (byte_at(opcode_at_) == op_STRING) {
    if (line.size() < 2 || line.front() != line.back() ||
        (line.front() != '\'' && line.front() != '"'))
      return fail("opcode STRING has a text without quotes");
    line = line.substr(1, line.size() - 2);
  }
  return line.find('\\') == std::string_view::npos ? push_text(line) : push(unread_text);
}

bool GlobalScan::put(std::uint64_t id) {
  if (stack_.size() == floor())
    return fail("opcode " + opcode_name(byte_at(opcode_at_)) + " finds nothing to keep");
  Known& kept = memo_at(id);
  if (!is_set(kept)) ++memo_count_;
  kept = stack_.back();
  return check_budget();
}

bool GlobalScan::get(std::uint64_t id) {
  const Known found = memo_at(id);
  return is_set(found) ? push(found) : fail("memo id " + std::to_string(id) + " was never set");
}

// A call of the lowest of `count` values, or of a method of it.
bool GlobalScan::call(std::size_t count) {
  if (stack_.size() - floor() < count) return pop(count);
  const bool is_call = is_made(stack_[stack_.size() - count]);
  scan_.has_calls = scan_.has_calls || is_call;
  return pop(count) && push(is_call ? from_name : something);
}

bool GlobalScan::stack_global() {
  if (stack_.size() - floor() < 2) return pop(2);
  const Known& module = stack_[stack_.size() - 2];
  const Known& of_it = stack_.back();
  const bool is_told = module.length != no_length && of_it.length != no_length;
  const bool may_be_told = !is_something(module) && !is_something(of_it);
  if (is_told)
    note(text_.substr(module.position, module.length), text_.substr(of_it.position, of_it.length));
  else
    note({}, {});
  return pop(2) && push(may_be_told ? from_name : something);
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
    case op_TUPLE2:
      return replace(2);
    case op_TUPLE3:
      return replace(3);
    case op_REDUCE:
    case op_NEWOBJ:
    case op_BUILD:
      return call(2);
    case op_NEWOBJ_EX:
      return call(3);
    case op_APPEND:
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
      return pop_to_mark() && push(something);
    case op_OBJ: {
      const bool is_call =
          !marks_.empty() && marks_.back() < stack_.size() && is_made(stack_[marks_.back()]);
      scan_.has_calls = scan_.has_calls || is_call;
      return pop_to_mark() && push(is_call ? from_name : something);
    }
    case op_STOP:
      if (stack_.size() == floor()) return fail("the pickle stops with nothing on its stack");
      stopped_ = true;
      return true;
    default:
      return step_operand(opcode);
  }
}

bool GlobalScan::step_operand(std::uint8_t opcode) {
  switch (opcode) {
    case op_PROTO:
      return operand_.number <= 5 ||
             fail("the pickle has protocol " + std::to_string(operand_.number));
    case op_FRAME:
      return true;
    case op_SHORT_BINUNICODE:
    case op_SHORT_BINSTRING:
    case op_BINUNICODE:
    case op_BINSTRING:
    case op_BINUNICODE8:
      return push_text(operand_.text);
    case op_UNICODE:
    case op_STRING:
      return push_line();
    case op_BINPUT:
    case op_LONG_BINPUT:
      return put(operand_.number);
    case op_MEMOIZE:
      return put(memo_count_);
    case op_BINGET:
    case op_LONG_BINGET:
      return get(operand_.number);
    case op_PUT:
    case op_GET: {
      const std::optional<std::uint64_t> id = read_id(operand_.text);
      if (!id) return fail("opcode " + opcode_name(opcode) + " has a memo id that is not a number");
      return opcode == op_PUT ? put(*id) : get(*id);
    }
    case op_GLOBAL:
      note(operand_.text, operand_.second_line);
      return push(from_name);
    case op_INST:
      note(operand_.text, operand_.second_line);
      if (!pop_to_mark()) return false;
      scan_.has_calls = true;
      return push(from_name);
    case op_STACK_GLOBAL:
      return stack_global();
    case op_INT:
    case op_LONG:
    case op_FLOAT:
      return may_be_number(operand_.text)
                 ? push(something)
                 : fail("opcode " + opcode_name(opcode) + " has no number");
    default:  // a number, bytes, or the object of an extension code
      if (operand_forms[opcode].kind != OperandKind::no_opcode) return push(something);
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
