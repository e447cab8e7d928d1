#include "tools/cat/slice.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

bool parse_integer(std::string_view text, std::optional<std::int64_t>& number) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  number = value;
  return true;
}

std::optional<SliceItem> parse_item(std::string_view text) {
  SliceItem item;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return parse_integer(text, item.index) ? std::optional(item) : std::nullopt;
  const std::string_view start = text.substr(0, colon);
  const std::string_view stop = text.substr(colon + 1);
  if (!start.empty() && !parse_integer(start, item.start)) return std::nullopt;
  if (!stop.empty() && !parse_integer(stop, item.stop)) return std::nullopt;
  return item;
}

std::int64_t from_end(std::int64_t value, std::int64_t size) {
  return value < 0 ? value + size : value;
}

Result<TensorSlice> take(const TensorView& view, std::size_t dim, const SliceItem& item) {
  const std::int64_t size = view.shape()[dim];
  if (item.index) {
    const std::int64_t index = from_end(*item.index, size);
    if (index >= 0 && index < size) return view.select(dim, index);
    return failure(ErrorCode::invalid_argument, "--slice: index " + std::to_string(*item.index) +
                                                    " is outside a dimension of " +
                                                    std::to_string(size));
  }
  const std::int64_t zero = 0;
  const std::int64_t start = std::clamp(from_end(item.start.value_or(0), size), zero, size);
  const std::int64_t stop = std::clamp(from_end(item.stop.value_or(size), size), start, size);
  return view.narrow(dim, start, stop - start);
}

}  // namespace

std::optional<std::vector<SliceItem>> parse_slice(const std::string& text) {
  std::vector<SliceItem> items;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::optional<SliceItem> item = parse_item(rest.substr(0, comma));
    if (!item) return std::nullopt;
    items.push_back(*item);
    if (comma == std::string_view::npos) return items;
    rest.remove_prefix(comma + 1);
  }
}

Result<TensorSlice> apply_slice(const TensorView& view, const std::vector<SliceItem>& items) {
  if (items.size() > view.rank())
    return failure(ErrorCode::invalid_argument, "--slice has " + count(items.size(), "item") +
                                                    ", the tensor " +
                                                    count(view.rank(), "dimension"));
  Result<TensorSlice> part = TensorSlice::of(view);
  std::size_t dim = 0;
  for (const SliceItem& item : items) {
    if (!part) break;
    part = take(*part, dim, item);
    if (!item.index) ++dim;
  }
  return part;
}

}  // namespace weightmap::cli
