#include "runtime/base/catalog/nearest_names.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace weightmap::catalog {
namespace {

constexpr std::size_t longest_name = 400;
constexpr std::size_t most_suggestions = 3;
constexpr std::size_t most_slips = 16;
constexpr std::size_t most_work = std::size_t{1} << 24;  // bytes compared
// The distance of a name that contains the wanted one.
constexpr std::size_t slips_of_part = 3;

// Removes the common prefix and suffix, which a shortest edit sequence never touches.
void drop_common_ends(std::string_view& a, std::string_view& b) noexcept {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto same = static_cast<std::size_t>(differ.first - a.begin());
  a.remove_prefix(same);
  b.remove_prefix(same);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
}

// The distance of names from the wanted one.
class Distance {
 public:
  explicit Distance(std::string_view wanted)
      : wanted_(wanted), limit_(std::clamp<std::size_t>(wanted.size() / 3, 1, most_slips)) {}

  // Returns nullopt for unrelated names.
  std::optional<std::size_t> of(std::string_view name) {
    const std::size_t edits = edits_to(name);
    work_ += name.size() + 1;
    if (wanted_.size() > 1 && name.find(wanted_) != std::string_view::npos)
      return std::min(edits, slips_of_part);
    return edits <= limit_ ? std::optional(edits) : std::nullopt;
  }
  std::size_t work() const noexcept { return work_; }

 private:
  // Returns the insertions, deletions and replacements of bytes; limit_ + 1 if they exceed limit_.
  std::size_t edits_to(std::string_view name) {
    std::string_view a = wanted_;
    std::string_view b = name;
    if (a.size() > b.size()) std::swap(a, b);
    if (b.size() - a.size() > limit_) return limit_ + 1;
    drop_common_ends(a, b);
    // row_[j]: edits between the first i bytes of b and the first j of a. Only j within limit_ of i
    // can be few enough.
    row_.resize(a.size() + 1);
    for (std::size_t j = 0; j < row_.size(); ++j) row_[j] = j;
    for (std::size_t i = 1; i <= b.size(); ++i) {
      const std::size_t first = i > limit_ ? i - limit_ : 1;
      const std::size_t last = std::min(a.size(), i + limit_);
      std::size_t diagonal = std::exchange(row_[first - 1], first == 1 ? i : limit_ + 1);
      std::size_t smallest = row_[first - 1];
      for (std::size_t j = first; j <= last; ++j) {
        const std::size_t replaced = diagonal + (a[j - 1] == b[i - 1] ? 0 : 1);
        diagonal = row_[j];
        row_[j] = std::min({replaced, row_[j] + 1, row_[j - 1] + 1});
        smallest = std::min(smallest, row_[j]);
      }
      work_ += last - first + 1;
      if (smallest > limit_) return limit_ + 1;
    }
    return std::min(row_.back(), limit_ + 1);
  }

  std::string_view wanted_;
  std::size_t limit_;
  std::size_t work_ = 0;
  std::vector<std::size_t> row_;
};

}  // namespace

std::vector<std::string_view> nearest_names(
    std::string_view wanted, std::size_t count,
    const std::function<std::string_view(std::size_t)>& name) {
  if (wanted.size() > longest_name) return {};
  Distance distance(wanted);
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (std::size_t i = 0; i < count && distance.work() < most_work; ++i) {
    const std::string_view candidate = name(i);
    if (candidate.size() > longest_name) continue;
    if (const std::optional<std::size_t> edits = distance.of(candidate))
      near.emplace_back(*edits, candidate);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < std::min(near.size(), most_suggestions); ++i)
    names.push_back(near[i].second);
  return names;
}

}  // namespace weightmap::catalog
