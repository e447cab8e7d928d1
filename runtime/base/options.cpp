#include "weightmap/options.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>

namespace weightmap {
namespace {

template <class T, std::size_t N>
using Words = std::array<std::pair<std::string_view, T>, N>;

constexpr Words<Sharing, 2> sharing_words = {
    {{"shared", Sharing::shared}, {"private", Sharing::private_}}};
constexpr Words<Verify, 3> verify_words = {
    {{"chain", Verify::chain}, {"headers", Verify::headers}, {"crc", Verify::crc}}};
constexpr Words<ByteOrder, 3> byte_order_words = {
    {{"little", ByteOrder::little}, {"big", ByteOrder::big}, {"native", ByteOrder::native}}};
constexpr Words<Protection, 3> protection_words = {
    {{"map", Protection::map}, {"guard", Protection::guard}, {"snapshot", Protection::snapshot}}};
constexpr Words<bool, 2> switch_words = {{{"0", false}, {"1", true}}};

template <class T, std::size_t N>
std::string_view word_of(const Words<T, N>& words, T value) noexcept {
  for (const auto& [word, meaning] : words)
    if (meaning == value) return word;
  return "unknown";
}

// Fills `field` from `variable` if the caller left it unset, else from `fallback`. An empty
// variable counts as unset.
template <class T, std::size_t N>
Result<void> fill(std::optional<T>& field, const char* variable, const Words<T, N>& words,
                  T fallback) {
  if (field) return {};
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') {
    field = fallback;
    return {};
  }
  std::string expected;
  for (const auto& [word, meaning] : words) {
    if (word == text) {
      field = meaning;
      return {};
    }
    if (!expected.empty()) expected += " or ";
    expected += word;
  }
  if (std::is_same_v<T, Protection> && text == std::string_view("copy"))
    expected += copy_protection_hint;
  // The value is not repeated: it did not come from a file, but it may end up in a log.
  return failure(ErrorCode::invalid_argument,
                 "environment variable " + std::string(variable) + " must be " + expected);
}

constexpr std::uint32_t max_depth = 65535;  // a node of the value tree has 16 bits for its depth

}  // namespace

Result<OpenOptions> with_defaults(OpenOptions options) {
  OpenOptions& o = options;
  if (o.limits.depth > max_depth)
    return failure(ErrorCode::invalid_argument,
                   "limits.depth is " + std::to_string(o.limits.depth) +
                       ", the largest that can be counted is " + std::to_string(max_depth));
  for (Result<void> filled :
       {fill(o.sharing, "WEIGHTMAP_SHARING", sharing_words, Sharing::shared),
        fill(o.writable, "WEIGHTMAP_WRITABLE", switch_words, false),
        fill(o.verify, "WEIGHTMAP_VERIFY", verify_words, Verify::chain),
        fill(o.missing_byte_order, "WEIGHTMAP_BYTEORDER", byte_order_words, ByteOrder::little),
        fill(o.populate, "WEIGHTMAP_POPULATE", switch_words, false),
        fill(o.no_reserve, "WEIGHTMAP_NORESERVE", switch_words, false),
        fill(o.locked, "WEIGHTMAP_LOCKED", switch_words, false),
        fill(o.huge_pages, "WEIGHTMAP_HUGEPAGES", switch_words, true),
        fill(o.protection, "WEIGHTMAP_PROTECTION", protection_words, Protection::map),
        fill(o.shared_catalog, "WEIGHTMAP_SHARED_CATALOG", switch_words, false)})
    if (!filled) return tl::unexpected<Error>(filled.error());
  return options;
}

Result<OpenOptions> default_open_options() { return with_defaults({}); }

std::string_view to_string(Sharing sharing) noexcept { return word_of(sharing_words, sharing); }
std::string_view to_string(Verify verify) noexcept { return word_of(verify_words, verify); }
std::string_view to_string(ByteOrder order) noexcept { return word_of(byte_order_words, order); }
std::string_view to_string(Protection how) noexcept { return word_of(protection_words, how); }

}  // namespace weightmap
