#include "weightmap/options.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "runtime/base/option_table.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/words.hpp"

namespace weightmap {
namespace {

// The words of a type in the order of its values.
template <class T>
constexpr auto words_of = nullptr;
template <>
constexpr std::array<std::string_view, 2> words_of<bool> = {"0", "1"};
template <>
constexpr std::array<std::string_view, 2> words_of<Sharing> = {"shared", "private"};
template <>
constexpr std::array<std::string_view, 3> words_of<Verify> = {"chain", "headers", "crc"};
template <>
constexpr std::array<std::string_view, 3> words_of<ByteOrder> = {"little", "big", "native"};
template <>
constexpr std::array<std::string_view, 3> words_of<Protection> = {"map", "guard", "reflink"};
template <>
constexpr std::array<std::string_view, 3> words_of<CopyOnWrite> = {"0", "1", "small"};
template <>
constexpr std::array<std::string_view, 2> words_of<Globals> = {"opaque", "torch_safe"};
template <>
constexpr std::array<std::string_view, 2> words_of<Repeats> = {"bounded", "any"};
template <>
constexpr std::array<std::string_view, 2> words_of<Access> = {"normal", "random"};

template <class T>
std::string_view word(T value) noexcept {
  return word_of(value, words_of<T>);
}

enum class CommandLine : bool { leaves_out, offers };

template <auto field>
struct Field {
  using T = typename std::remove_cvref_t<decltype(OpenOptions{}.*field)>::value_type;

  static std::optional<std::size_t> get(const OpenOptions& options) noexcept {
    if (!(options.*field)) return std::nullopt;
    return static_cast<std::size_t>(*(options.*field));
  }
  static void set(OpenOptions& options, std::size_t word) noexcept {
    options.*field = static_cast<T>(word);
  }
  static constexpr OptionRow row(std::string_view name, const char* variable, T fallback,
                                 CommandLine command_line, std::string_view help) {
    return {name,
            variable,
            words_of<T>,
            static_cast<std::size_t>(fallback),
            command_line == CommandLine::offers,
            help,
            get,
            set};
  }
};

using enum CommandLine;
using O = OpenOptions;
constexpr std::array option_rows = {
    Field<&O::sharing>::row("sharing", "WEIGHTMAP_SHARING", Sharing::shared, offers,
                            "map the file shared (MAP_SHARED) or private (MAP_PRIVATE)"),
    Field<&O::verify>::row("verify", "WEIGHTMAP_VERIFY", Verify::chain, offers,
                           "what to prove before anything is shown"),
    Field<&O::missing_byte_order>::row("endianness", "WEIGHTMAP_BYTEORDER", ByteOrder::little,
                                       leaves_out,
                                       "byte order of a file that does not say (torch before 2.1)"),
    Field<&O::protection>::row("protection", "WEIGHTMAP_PROTECTION", Protection::map, offers,
                               "what to do about the loss of the file"),
    Field<&O::writable>::row("writable", "WEIGHTMAP_WRITABLE", false, leaves_out,
                             "map for writing"),
    Field<&O::populate>::row(
        "populate", "WEIGHTMAP_POPULATE", false, leaves_out,
        "fault all pages in at open (MADV_POPULATE_READ, after the advice on huge pages)"),
    Field<&O::no_reserve>::row("no_reserve", "WEIGHTMAP_NORESERVE", false, leaves_out,
                               "no swap accounting (MAP_NORESERVE)"),
    Field<&O::locked>::row("locked", "WEIGHTMAP_LOCKED", false, leaves_out,
                           "keep pages in memory (mlock; an error beyond RLIMIT_MEMLOCK)"),
    Field<&O::huge_pages>::row("huge_pages", "WEIGHTMAP_HUGEPAGES", true, offers,
                               "ask for 2 MiB pages before any touch (MADV_HUGEPAGE)"),
    Field<&O::zero_copy_only>::row(
        "zero_copy_only", "WEIGHTMAP_ZERO_COPY_ONLY", false, offers,
        "refuse compressed storages and foreign byte orders, whose tensors have to be copied"),
    Field<&O::copy_on_write>::row(
        "copy_on_write", "WEIGHTMAP_COPY_ON_WRITE", CopyOnWrite::on, leaves_out,
        "whether torch tensors may be written to, page by page, or those of less than 1 MiB"),
    Field<&O::globals>::row("globals", "WEIGHTMAP_GLOBALS", Globals::opaque, offers,
                            "whether names that torch does not allow by default are refused"),
    Field<&O::repeats>::row(
        "repeats", "WEIGHTMAP_REPEATS", Repeats::bounded, offers,
        "which tensors are written out or compared whose strides repeat what is stored"),
};

// Applies where a call left the option unset. An empty variable counts as unset.
Result<void> fill_from_environment(OpenOptions& options, const OptionRow& option) {
  if (option.get(options)) return {};
  const char* text = std::getenv(option.variable);
  if (text == nullptr || *text == '\0') return {};
  if (const std::optional<std::size_t> word = option.find(text)) {
    option.set(options, *word);
    return {};
  }
  std::string expected;
  for (std::string_view word : option.words)
    expected += (expected.empty() ? "" : " or ") + std::string(word);
  expected += option.hint_about(text);
  // The value is not repeated, since the message may be logged.
  return failure(ErrorCode::invalid_argument,
                 "environment variable " + std::string(option.variable) + " must be " + expected);
}

constexpr std::uint32_t max_depth = 65535;  // a node of the value tree has 16 bits for its depth

Result<void> check_limits(const Limits& limits) {
  if (limits.depth <= max_depth) return {};
  return failure(ErrorCode::invalid_argument, "limits.depth is " + std::to_string(limits.depth) +
                                                  ", the largest that can be counted is " +
                                                  std::to_string(max_depth));
}

}  // namespace

bool OptionRow::is_switch() const noexcept { return words.data() == words_of<bool>.data(); }

std::optional<std::size_t> OptionRow::find(std::string_view word) const noexcept {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<std::size_t>(found - words.begin());
}

std::string_view OptionRow::hint_about(std::string_view word) const noexcept {
  if (name != "protection") return {};
  if (word == "snapshot") return " (snapshot is called reflink)";
  if (word == "copy")
    return " (a copy in memory is made by `weightmap stage`, or stage() in a program)";
  return {};
}

std::span<const OptionRow> option_table() noexcept { return option_rows; }

const OptionRow* find_option(std::string_view name) noexcept {
  for (const OptionRow& option : option_rows)
    if (option.name == name) return &option;
  return nullptr;
}

Result<OpenOptions> with_environment(OpenOptions options) {
  for (const OptionRow& option : option_rows) TRY(fill_from_environment(options, option));
  return options;
}

Result<OpenOptions> with_defaults(OpenOptions options) {
  TRY(check_limits(options.limits));
  TRY_ASSIGN(OpenOptions filled, with_environment(std::move(options)));
  for (const OptionRow& option : option_rows)
    if (!option.get(filled) && option.name != "huge_pages") option.set(filled, option.default_word);
  return filled;
}

Result<OpenOptions> default_open_options() { return with_defaults({}); }

OpenOptions OpenOptions::to_look() {
  OpenOptions options;
  for (const OptionRow& option : option_rows)
    if (option.name != "endianness" && option.name != "huge_pages" && option.name != "repeats")
      option.set(options, option.default_word);
  return options;
}

std::string_view to_string(Sharing sharing) noexcept { return word(sharing); }
std::string_view to_string(Verify verify) noexcept { return word(verify); }
std::string_view to_string(ByteOrder order) noexcept { return word(order); }
std::string_view to_string(Protection how) noexcept { return word(how); }
std::string_view to_string(CopyOnWrite how) noexcept { return word(how); }
std::string_view to_string(Globals globals) noexcept { return word(globals); }
std::string_view to_string(Repeats repeats) noexcept { return word(repeats); }
std::string_view to_string(Access access) noexcept { return word(access); }

}  // namespace weightmap
