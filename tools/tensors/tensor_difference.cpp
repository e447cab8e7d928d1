#include "tools/tensors/tensor_difference.hpp"

#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/tensors/tensor_selection.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {
namespace {

// Returns a unique text for the tensor's path.
std::string identity_of(const Checkpoint& checkpoint, std::size_t index) {
  std::string text;
  for (const PathPart& part : checkpoint.path(index)) {
    text += part.is_integer() ? 'i' : 'k';
    text += part.is_integer() ? std::to_string(part.integer())
                              : std::to_string(part.key().size()) + ":" + std::string(part.key());
  }
  return text;
}

// Chooses the tensors of one side that match the patterns; some may match the other side only.
Result<std::vector<NamedTensor>> choose(const Checkpoint& checkpoint, const Checkpoint& other,
                                        const std::vector<std::string>& patterns) {
  TensorSelection selection;
  for (const std::string& pattern : patterns)
    if (!match_tensors(checkpoint, pattern).empty() || match_tensors(other, pattern).empty())
      selection.patterns.push_back(pattern);
  std::vector<NamedTensor> chosen;
  if (selection.patterns.empty() && !patterns.empty()) return chosen;
  TRY_ASSIGN(const std::vector<std::size_t> indices, select(checkpoint, selection));
  for (const std::size_t index : indices) chosen.push_back(checkpoint.tensors()[index]);
  return chosen;
}

bool have_one_shape(const TensorView& a, const TensorView& b) noexcept {
  return std::ranges::equal(a.shape(), b.shape());
}

using Pairs = std::vector<TensorPair>;

// Returns pairs in the order of the first side; tensors of the second side only come last.
Pairs pair_by_path(const Checkpoint& old, const std::vector<NamedTensor>& olds,
                   const Checkpoint& now, const std::vector<NamedTensor>& nows) {
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < nows.size(); ++i) places.emplace(identity_of(now, nows[i].index), i);
  Pairs pairs;
  std::vector<bool> taken(nows.size());
  for (const NamedTensor& tensor : olds) {
    const auto found = places.find(identity_of(old, tensor.index));
    TensorPair& pair = pairs.emplace_back();
    pair.old = tensor;
    if (found == places.end()) {
      pair.change = Change::removed;
      continue;
    }
    taken[found->second] = true;
    pair.now = nows[found->second];
  }
  for (std::size_t i = 0; i < nows.size(); ++i) {
    if (taken[i]) continue;
    TensorPair& pair = pairs.emplace_back();
    pair.change = Change::added;
    pair.now = nows[i];
  }
  return pairs;
}

// True if its tensors have names and no paths, so that an index is text, and so is a nested key.
bool has_names_only(const Checkpoint& checkpoint) {
  const Format format = checkpoint.info().format;
  return is_header_and_elements(format) || format == Format::npz;
}

void pair_by_name(Pairs& pairs) {
  std::unordered_map<std::string_view, TensorPair*> added;
  for (TensorPair& pair : pairs)
    if (pair.change == Change::added) added.emplace(pair.now->name, &pair);
  for (TensorPair& pair : pairs) {
    if (pair.change != Change::removed) continue;
    const auto found = added.find(pair.old->name);
    if (found == added.end()) continue;
    pair.now = std::exchange(found->second->now, std::nullopt);
    pair.change = Change::none;
    added.erase(found);
  }
  std::erase_if(pairs, [](const TensorPair& pair) { return !pair.old && !pair.now; });
}

// Gives a tensor without a counterpart the array at its path in the other file, if there is one.
void add_array(TensorPair& pair, const Checkpoint& old, const Checkpoint& now) {
  const bool is_removed = pair.change == Change::removed;
  const Checkpoint& file = is_removed ? old : now;
  const NamedTensor& tensor = is_removed ? *pair.old : *pair.now;
  const Result<Value> values = (is_removed ? now : old).values();
  const std::optional<Value> found =
      values ? find_value(*values, file.path(tensor.index)) : std::nullopt;
  std::optional<NumpyValue> array = found ? numpy_array(*found) : std::nullopt;
  if (!array) return;
  pair.array = std::make_shared<const NumpyValue>(*std::move(array));
  NamedTensor& other = (is_removed ? pair.now : pair.old).emplace(tensor);
  other.view = pair.array->view();
  pair.change = Change::none;
}

// Candidates for renamed tensors, in file order.
class Added {
 public:
  explicit Added(Pairs& pairs) {
    for (TensorPair& pair : pairs)
      if (pair.change == Change::added) by_kind_[kind_of(pair.now->view)].push_back(&pair);
  }

  // Removes and returns a tensor with the same bits; nullptr if there is none.
  TensorPair* take_same(const TensorView& view) {
    std::list<TensorPair*>& alike = by_kind_[kind_of(view)];
    std::size_t tried = 0;
    for (auto at = alike.begin(); at != alike.end() && tried < most_tried; ++at, ++tried) {
      TensorPair* const pair = *at;
      const Result<bool> same = same_bits(view, pair->now->view);
      if (!same || !*same) continue;
      alike.erase(at);
      return pair;
    }
    return nullptr;
  }

 private:
  // Limits the comparisons among tensors of the same kind.
  static constexpr std::size_t most_tried = 32;

  static std::string kind_of(const TensorView& view) {
    std::string kind(to_string(view.dtype()));
    for (const std::int64_t size : view.shape()) kind += "," + std::to_string(size);
    return kind;
  }

  std::unordered_map<std::string, std::list<TensorPair*>> by_kind_;
};

void find_renamed(Pairs& pairs) {
  Added added(pairs);
  for (TensorPair& pair : pairs) {
    if (pair.change != Change::removed || pair.old->view.numel() == 0) continue;
    TensorPair* const same = added.take_same(pair.old->view);
    if (same == nullptr) continue;
    pair.change = Change::renamed;
    pair.now = std::exchange(same->now, std::nullopt);
  }
  std::erase_if(pairs, [](const TensorPair& pair) { return !pair.old && !pair.now; });
}

void compare_elements(Pairs& pairs, const Progress& progress) {
  std::uint64_t all = 0;
  const auto are_compared = [](const TensorPair& pair) {
    return pair.change == Change::none && have_one_shape(pair.old->view, pair.now->view);
  };
  for (const TensorPair& pair : pairs)
    if (are_compared(pair)) all += pair.old->view.nbytes();
  std::uint64_t before = 0;
  for (TensorPair& pair : pairs) {
    if (pair.change != Change::none) continue;
    const TensorView& old = pair.old->view;
    const TensorView& now = pair.now->view;
    if (are_compared(pair)) {
      Result<TensorDifference> found = difference(old, now, [&](std::uint64_t done, std::uint64_t) {
        return progress(before + done, all);
      });
      before += old.nbytes();
      if (found)
        pair.found = std::move(*found);
      else
        pair.error = std::move(found.error());
    }
    const bool equal = pair.found && pair.found->differing == 0;
    if (pair.error && old.dtype() == now.dtype())
      pair.change = Change::not_compared;
    else if (!equal || old.dtype() != now.dtype())
      pair.change = Change::changed;
  }
}

}  // namespace

std::string_view to_string(Change change) noexcept {
  constexpr std::string_view words[] = {"equal",   "changed", "renamed",
                                        "removed", "added",   "not compared"};
  return words[static_cast<std::size_t>(change)];
}

Result<std::vector<TensorPair>> compare_tensors(const Checkpoint& old, const Checkpoint& now,
                                                const std::vector<std::string>& patterns,
                                                const Progress& progress) {
  TRY_ASSIGN(const std::vector<NamedTensor> olds, choose(old, now, patterns));
  TRY_ASSIGN(const std::vector<NamedTensor> nows, choose(now, old, patterns));
  Pairs pairs = pair_by_path(old, olds, now, nows);
  if (have_same_files(old, now)) return pairs;
  if (has_names_only(old) || has_names_only(now)) pair_by_name(pairs);
  for (TensorPair& pair : pairs)
    if (pair.change != Change::none) add_array(pair, old, now);
  find_renamed(pairs);
  compare_elements(pairs, progress);
  return pairs;
}

bool have_same_files(const Checkpoint& a, const Checkpoint& b) noexcept {
  if (a.source_count() != b.source_count()) return false;
  for (std::size_t i = 0; i < a.source_count(); ++i)
    if (!a.source(i).generation.same_content(b.source(i).generation)) return false;
  return true;
}

}  // namespace weightmap::cli
