// Opcodes of protocol 0 whose operand is a line of text.
#include <bit>
#include <cstring>
#include <optional>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/pickle/text_operands.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

// True for ASCII without escapes, which needs no decoding.
bool is_plain(std::string_view text) noexcept {
  for (const char byte : text)
    if ((byte & 0x80) != 0 || byte == '\\') return false;
  return true;
}

}  // namespace

bool Machine::step_text(std::uint8_t opcode) {
  switch (opcode) {
    case op_INT:
      return push_int_line();
    case op_LONG:
      return push_long_line();
    case op_FLOAT:
      return push_float_line();
    case op_STRING:
      return push_string_line();
    case op_UNICODE:
      return push_unicode_line();
    case op_PUT:
      return put_line();
    case op_GET:
      return get_line();
    default:
      return refuse(opcode);
  }
}

bool Machine::fail_line(std::string_view line, const char* expected) {
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has the line " +
                                      bytes::quote(line) + ", expected " + expected);
}

bool Machine::push_int_line() {
  const std::string_view line = operand_.text;
  if (line == "00" || line == "01")
    return push(value::make_cell(boolean, std::uint64_t{line == "01"}));
  return push_decimal(line);
}

bool Machine::push_long_line() {
  std::string_view line = operand_.text;
  if (line.ends_with('L')) line.remove_suffix(1);
  return push_decimal(line);
}

bool Machine::push_decimal(std::string_view digits) {
  if (!is_decimal(digits)) return fail_line(digits, "a decimal number");
  if (digits.size() - digits.starts_with('-') > max_digits)
    return fail(ErrorCode::limit_exceeded, "opcode " + opcode_name(*opcode_at_) +
                                               " has a number of more than " +
                                               std::to_string(max_digits) + " digits");
  if (const auto small = decode_small(digits)) return push(value::make_integer(*small));
  const DecodedInteger made = decode_integer(digits);
  char* const kept = arena_.allocate<char>(made.size);
  if (kept == nullptr) return fail_budget();
  std::memcpy(kept, made.bytes.data(), made.size);
  return push_text(big_integer, {kept, made.size});
}

bool Machine::push_float_line() {
  const std::optional<double> made = decode_real(operand_.text);
  if (!made) return fail_line(operand_.text, "a number that a float can hold");
  return push(value::make_cell(real, std::bit_cast<std::uint64_t>(*made)));
}

bool Machine::push_string_line() {
  const std::string_view line = operand_.text;
  const bool is_quoted = line.size() >= 2 && line.front() == line.back() &&
                         (line.front() == '\'' || line.front() == '"');
  if (!is_quoted) return fail_line(line, "a text in quotes");
  const std::string_view content = line.substr(1, line.size() - 2);
  if (content.find('\\') == std::string_view::npos) return push_python_2(content);
  char* const kept = arena_.allocate<char>(space_for(content));
  if (kept == nullptr) return fail_budget();
  const std::optional<std::size_t> size = decode_escapes(content, kept);
  return size ? push_python_2({kept, *size}) : fail_line(line, "escapes as Python writes them");
}

bool Machine::push_unicode_line() {
  const std::string_view line = operand_.text;
  if (is_plain(line)) return push_text(string, line);
  char* const kept = arena_.allocate<char>(space_for(line));
  if (kept == nullptr) return fail_budget();
  const std::optional<std::size_t> size = decode_characters(line, kept);
  return size ? push_text(string, {kept, *size}) : fail_line(line, "escapes as Python writes them");
}

std::optional<std::uint64_t> Machine::id_of_line() {
  constexpr std::size_t most = 10;  // digits of 32 bits
  const std::string_view line = operand_.text;
  if (is_decimal(line) && !line.starts_with('-') && line.size() <= most)
    return static_cast<std::uint64_t>(*decode_small(line));
  fail_line(line, "a memo id");
  return std::nullopt;
}

bool Machine::put_line() {
  const std::optional<std::uint64_t> id = id_of_line();
  return id && put(*id);
}

bool Machine::get_line() {
  const std::optional<std::uint64_t> id = id_of_line();
  return id && get(*id);
}

}  // namespace weightmap::pickle
