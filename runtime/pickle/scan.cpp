#include "runtime/pickle/scan.hpp"

#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "runtime/bytes/counted.hpp"
#include "runtime/pickle/operand.hpp"

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
constexpr std::size_t most_name_bytes = 4096;  // of a global, as in parse()

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
  bool push_text(std::string_view text);
  bool push_line();
  std::optional<std::uint64_t> id_of_line();
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
                              marks_.capacity() * sizeof(std::size_t) * 3 / 2;
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
  return fail_early(source.needed > source.left()
                        ? short_of(opcode, source.needed, source.left())
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
  return line.find('\\') == std::string_view::npos ? push_text(line) : push(something);
}

std::optional<std::uint64_t> GlobalScan::id_of_line() {
  std::uint64_t id = 0;
  const char* const last = operand_.text.data() + operand_.text.size();
  const auto [end, error] = std::from_chars(operand_.text.data(), last, id);
  if (error == std::errc{} && end == last) return id;
  fail("opcode " + opcode_name(byte_at(opcode_at_)) + " has a memo id that is not a number");
  return std::nullopt;
}

bool GlobalScan::put(std::uint64_t id) {
  if (stack_.size() == floor())
    return fail("opcode " + opcode_name(byte_at(opcode_at_)) + " finds nothing to keep");
  // As in parse(): a pickler counts its memo from zero.
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
    case op_PUT: {
      const std::optional<std::uint64_t> id = id_of_line();
      return id && put(*id);
    }
    case op_GET: {
      const std::optional<std::uint64_t> id = id_of_line();
      return id && get(*id);
    }
    case op_GLOBAL:
      note(operand_.text, operand_.second_line);
      return push(something);
    case op_INST:
      note(operand_.text, operand_.second_line);
      return pop_to_mark() && push(something);
    case op_STACK_GLOBAL:
      return stack_global();
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
