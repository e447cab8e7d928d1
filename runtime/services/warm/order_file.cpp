#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/name_pattern.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {
namespace {

constexpr std::string_view first_line =
    "# The order in which tensors are needed first, for: weightmap warm --order\n";
constexpr std::string_view blanks = " \t\r";
// The work for a line with wildcards grows with its length and with the checkpoint.
constexpr std::size_t most_bytes = std::size_t{64} << 20;
constexpr std::size_t most_line_bytes = std::size_t{1} << 20;
constexpr std::size_t most_wildcard_bytes = std::size_t{64} << 10;

Error about(const std::filesystem::path& path, Error error) {
  error.file = bytes::escape(path.native());
  return error;
}

Error too_long() {
  return {ErrorCode::limit_exceeded, "the order has more than 64 MiB", Error::no_offset, {}};
}

// Returns the pattern that matches exactly this name.
std::string line_of(std::string_view name) {
  constexpr std::size_t never_cut = std::numeric_limits<std::size_t>::max();
  if (name.empty()) return "\\";
  std::string line;
  for (char c : bytes::escape(name, never_cut)) {
    constexpr std::string_view special = "*?[#";
    if (special.find(c) == std::string_view::npos)
      line += c;
    else
      line += c == '*' ? "\\x2A" : c == '?' ? "\\x3F" : c == '[' ? "\\x5B" : "\\x23";
  }
  if (line.back() == ' ') line.replace(line.size() - 1, 1, "\\x20");
  if (line.front() == ' ') line.replace(0, 1, "\\x20");
  return line;
}

std::string_view trimmed(std::string_view line) noexcept {
  const std::size_t first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) - first + 1);
}

// A file that is not regular could block the reader, or never end.
Result<std::string> read_text(const std::filesystem::path& path) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(path, unknown) && std::filesystem::is_empty(path, unknown))
    return std::string();
  Result<os::File> file = os::File::open(path, false);
  if (!file) {
    file.error().code = ErrorCode::io;  // it need not be a checkpoint
    return tl::unexpected<Error>(std::move(file.error()));
  }
  if (file->size() > most_bytes) return tl::unexpected<Error>(too_long());
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  TRY(file->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Collects the tensors that lines name.
class OrderReader {
 public:
  explicit OrderReader(std::span<const std::string_view> names)
      : names_(names), by_name_(names.size()), taken_(names.size()) {
    std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
    std::stable_sort(by_name_.begin(), by_name_.end(),
                     [this](std::size_t a, std::size_t b) { return names_[a] < names_[b]; });
  }

  Result<void> read(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end - at > most_line_bytes)
        return failure(ErrorCode::limit_exceeded, "a line has more than 1 MiB", at);
      const std::string_view line = trimmed(text.substr(at, end - at));
      if (!line.empty() && line.front() != '#') TRY(read_line(line, at));
      at = end + 1;
    }
    return {};
  }

  std::size_t lines() const noexcept { return lines_; }
  TensorOrder take() noexcept { return std::move(order_); }

 private:
  Result<void> read_line(std::string_view line, std::size_t at) {
    ++lines_;
    const NamePattern pattern(line);
    if (pattern.has_wildcards()) {
      wildcard_bytes_ += line.size();
      if (wildcard_bytes_ > most_wildcard_bytes)
        return failure(ErrorCode::limit_exceeded, "lines with wildcards have more than 64 KiB", at);
    }
    if (!(pattern.has_wildcards() ? take_matching(pattern) : take_named(pattern.name())))
      ++order_.unmatched_lines;
    return {};
  }

  bool take_named(std::string_view wanted) {
    const auto first =
        std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                         [this](std::size_t a, std::string_view b) { return names_[a] < b; });
    auto at = first;
    // If the first tensor of this name was taken, all were.
    for (; at != by_name_.end() && names_[*at] == wanted && !taken_[*at]; ++at) take_tensor(*at);
    return first != by_name_.end() && names_[*first] == wanted;
  }

  bool take_matching(const NamePattern& pattern) {
    bool found = false;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!pattern.matches(names_[i])) continue;
      found = true;
      if (!taken_[i]) take_tensor(i);
    }
    return found;
  }

  void take_tensor(std::size_t tensor) {
    taken_[tensor] = true;
    order_.tensors.push_back(tensor);
  }

  std::span<const std::string_view> names_;
  std::vector<std::size_t> by_name_;
  std::vector<bool> taken_;
  std::size_t lines_ = 0;
  std::size_t wildcard_bytes_ = 0;
  TensorOrder order_;
};

Result<TensorOrder> read_order(std::span<const std::string_view> names, std::string_view text) {
  OrderReader reader(names);
  TRY(reader.read(text));
  TensorOrder order = reader.take();
  if (order.tensors.empty() && reader.lines() > 0)
    return failure(ErrorCode::invalid_argument,
                   "the order is of another model: none of its lines (" +
                       std::to_string(reader.lines()) + ") names a tensor of this one");
  return order;
}

}  // namespace

std::vector<std::size_t> demand_order(const Checkpoint& checkpoint) {
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  return state.demand_log.order(state.tensors);
}

Result<void> save_tensor_order(const Checkpoint& checkpoint, std::span<const std::size_t> tensors,
                               const std::filesystem::path& path) {
  const std::size_t all = checkpoint.tensors().size();
  std::string text(first_line);
  for (std::size_t index : tensors) {
    if (index >= all)
      return failure(ErrorCode::invalid_argument,
                     "there is no tensor " + std::to_string(index) + " of " + std::to_string(all));
    const std::string line = line_of(tensor_name(checkpoint, index));
    if (line.size() <= most_line_bytes) text.append(line).push_back('\n');
  }
  if (text.size() > most_bytes) return tl::unexpected<Error>(about(path, too_long()));
  NewFileOptions options;
  options.kept = checkpoint.source(0).generation;
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<TensorOrder> load_tensor_order(const Checkpoint& checkpoint,
                                      const std::filesystem::path& path) {
  std::vector<std::string_view> names(checkpoint.tensors().size());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = tensor_name(checkpoint, i);
  return load_tensor_order(names, path);
}

Result<TensorOrder> load_tensor_order(std::span<const std::string_view> names,
                                      const std::filesystem::path& path) {
  const Result<std::string> text = read_text(path);
  if (!text) return tl::unexpected<Error>(about(path, text.error()));
  Result<TensorOrder> order = read_order(names, *text);
  if (!order) return tl::unexpected<Error>(about(path, order.error()));
  return order;
}

}  // namespace weightmap
