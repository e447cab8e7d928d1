#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/name_pattern.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {
namespace {

// Of all fused tensors; no model has so many. Tensors without bytes could ask for any number.
constexpr std::uint64_t most_slices = std::uint64_t{1} << 22;

// What the name of a tensor says of the experts that it has.
struct ExpertName {
  std::string before;                   // "layers.0.experts." or "blk.0.exps."
  std::optional<std::uint64_t> expert;  // nullopt: the first dimension is that of the experts
};

// "layers.0.experts.7.w1.weight" and "layers.0.experts.gate_up_proj", as transformers has them.
std::optional<ExpertName> name_in_experts(std::string_view name) {
  constexpr std::string_view word = "experts.";
  for (std::size_t at = name.find(word); at != std::string_view::npos;
       at = name.find(word, at + 1)) {
    if (at != 0 && name[at - 1] != '.') continue;
    const std::size_t begin = at + word.size();
    const std::string_view next = name.substr(begin, name.find('.', begin) - begin);
    const auto expert = bytes::number(next);
    const bool is_last = begin + next.size() == name.size();
    if (is_last || expert)
      return ExpertName{std::string(name.substr(0, begin)), is_last ? std::nullopt : expert};
  }
  return std::nullopt;
}

// "blk.0.ffn_gate_exps.weight", as GGUF has them.
std::optional<ExpertName> name_of_exps(std::string_view name) {
  constexpr std::string_view word = "_exps.";
  const std::size_t at = name.rfind(word);
  if (at == std::string_view::npos || name.find('.', at + word.size()) != std::string_view::npos)
    return std::nullopt;
  const std::size_t dot = name.rfind('.', at);
  return ExpertName{std::string(name.substr(0, dot + 1)) + "exps.", std::nullopt};
}

// The tensors of one expert, or of all experts in a layer.
struct Group {
  std::string name;
  std::vector<std::string_view> tensors;
};

// In file order of their first tensors; the tensors of each by name.
class Groups {
 public:
  void add(const std::string& name, std::string_view tensor) {
    const auto [at, is_new] = places_.emplace(name, groups_.size());
    if (is_new) groups_.push_back({name, {}});
    groups_[at->second].tensors.push_back(tensor);
  }
  const std::vector<Group>& sorted() {
    for (Group& group : groups_) std::ranges::sort(group.tensors);
    return groups_;
  }
  // Returns nullptr if there is none of this name.
  const Group* find(const std::string& name) const {
    const auto at = places_.find(name);
    return at == places_.end() ? nullptr : &groups_[at->second];
  }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<Group> groups_;
};

Unit unit_of(const std::string& name, const std::vector<std::string_view>& tensors,
             std::optional<std::int64_t> index) {
  Unit unit{name, {}};
  for (const std::string_view tensor : tensors)
    unit.parts.push_back({std::string(tensor), index, false});
  return unit;
}

Result<std::int64_t> experts_of(const Checkpoint& checkpoint, const std::string& layer,
                                const std::vector<std::string_view>& tensors) {
  std::optional<std::int64_t> experts;
  for (const std::string_view tensor : tensors) {
    TRY_ASSIGN(const WholeTensor whole, whole_tensor(checkpoint, tensor));
    const std::int64_t first = whole.sizes.empty() ? 0 : whole.sizes.front();
    if (experts.value_or(first) != first)
      return failure(ErrorCode::unsupported,
                     bytes::quote(layer) + " has tensors for " + std::to_string(*experts) +
                         " experts, and " + bytes::quote(tensor) + " for " + std::to_string(first));
    experts = first;
  }
  return *experts;
}

}  // namespace

Result<std::vector<Unit>> expert_units(const Checkpoint& checkpoint, std::string_view pattern) {
  const NamePattern wanted(pattern);
  Groups single, fused;
  for (const std::string_view tensor : whole_names(checkpoint)) {
    if (wanted.has_wildcards() ? !wanted.matches(tensor) : tensor != wanted.name()) continue;
    std::optional<ExpertName> name = name_in_experts(tensor);
    if (!name) name = name_of_exps(tensor);
    if (!name) continue;
    if (name->expert)
      single.add(name->before + std::to_string(*name->expert), tensor);
    else
      fused.add(name->before, tensor);
  }
  std::vector<Unit> units;
  for (const auto& [name, tensors] : single.sorted())
    units.push_back(unit_of(name, tensors, std::nullopt));
  std::uint64_t left = most_slices;
  for (const auto& [layer, tensors] : fused.sorted()) {
    TRY_ASSIGN(const std::int64_t experts, experts_of(checkpoint, layer, tensors));
    if (static_cast<std::uint64_t>(experts) > left / tensors.size())
      return failure(ErrorCode::limit_exceeded, bytes::quote(tensors.front()) + " has " +
                                                    std::to_string(experts) +
                                                    " experts; all together there are more than " +
                                                    std::to_string(most_slices) + " slices");
    left -= static_cast<std::uint64_t>(experts) * tensors.size();
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const std::string name = layer + std::to_string(expert);
      if (const Group* const own = single.find(name))
        return failure(ErrorCode::unsupported,
                       bytes::quote(name) + " has a tensor of its own, " +
                           bytes::quote(own->tensors.front()) + ", and slice " +
                           std::to_string(expert) + " of " + bytes::quote(tensors.front()) +
                           "; give a pattern that matches those of one kind");
      units.push_back(unit_of(name, tensors, expert));
    }
  }
  if (!units.empty()) return units;
  return failure(ErrorCode::not_found,
                 "no tensor that matches " + bytes::quote(pattern) +
                     " is one of experts by its name (\"experts.7.\", \"experts.\", \"_exps.\")");
}

}  // namespace weightmap
