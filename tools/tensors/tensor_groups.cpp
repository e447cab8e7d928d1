#include "tools/tensors/tensor_groups.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace weightmap::cli {
namespace {

using Indices = std::vector<std::size_t>;

std::string_view first_parts(std::string_view name, std::size_t depth) noexcept {
  std::size_t end = 0;
  for (std::size_t part = 0; part < depth; ++part) {
    end = name.find('.', part == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) return name;
  }
  return name.substr(0, end);
}

std::size_t count_groups(const Checkpoint& checkpoint, const Indices& indices, std::size_t depth) {
  std::unordered_set<std::string_view> names;
  for (const std::size_t index : indices)
    names.insert(first_parts(tensor_name(checkpoint, index), depth));
  return names.size();
}

// The groups, without figures, and the group of each index.
struct Named {
  std::vector<TensorGroup> groups;
  Indices group_of;
};

Named name_groups(const Checkpoint& checkpoint, const Indices& indices, Grouping grouping) {
  Named named;
  std::unordered_map<std::string_view, std::size_t> known;
  for (const std::size_t index : indices) {
    const std::string_view whole = tensor_name(checkpoint, index);
    const std::string_view name = grouping.depth > 0 ? first_parts(whole, grouping.depth) : whole;
    std::size_t group = named.groups.size();
    if (grouping.depth > 0) group = known.try_emplace(name, group).first->second;
    if (group == named.groups.size()) {
      named.groups.emplace_back();
      named.groups.back().name = name;
    }
    named.group_of.push_back(group);
  }
  return named;
}

// A tensor's bytes in the file and their group.
struct Share {
  std::size_t group;
  std::size_t source;
  std::uint64_t offset;
  std::uint64_t extent;
  std::uint64_t cached;
  auto key() const noexcept { return std::tuple(group, source, offset, extent); }
};

// Tied weights are one range under several names.
void drop_repeated(std::vector<Share>& shares) {
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.key() < b.key(); });
  const auto same = [](const Share& a, const Share& b) { return a.key() == b.key(); };
  shares.erase(std::unique(shares.begin(), shares.end(), same), shares.end());
}

}  // namespace

Grouping Grouping::by_size(const Checkpoint& checkpoint, const Indices& indices) {
  constexpr std::size_t most_groups = 40;
  constexpr std::size_t deepest = 16;
  std::size_t depth = 1;
  // A greater depth never has fewer groups.
  for (; depth < deepest; ++depth) {
    const std::size_t finer = count_groups(checkpoint, indices, depth + 1);
    if (finer > most_groups || finer * 2 > indices.size()) break;
  }
  return {depth};
}

std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint, const Indices& indices,
                                       Grouping grouping) {
  Named named = name_groups(checkpoint, indices, grouping);
  std::set<std::tuple<std::size_t, std::uint64_t, std::uint64_t, std::uint64_t>> counted;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const NamedTensor tensor = checkpoint.tensors()[indices[i]];
    const std::uint64_t extent = tensor.view.stored_bytes().size();
    if (extent > 0 &&
        !counted.emplace(tensor.source, tensor.file_offset, extent, tensor.view.numel()).second)
      continue;
    TensorGroup& group = named.groups[named.group_of[i]];
    ++group.tensors;
    group.elements += tensor.view.numel();
    group.bytes += extent;
  }
  return std::move(named.groups);
}

std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint, const Indices& indices,
                                       Grouping grouping, const ResidencyReport& report) {
  Named named = name_groups(checkpoint, indices, grouping);
  std::vector<Share> shares;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    ++named.groups[named.group_of[i]].tensors;
    const TensorResidency& tensor = report.tensors[indices[i]];
    shares.push_back({named.group_of[i], tensor.source, tensor.file_offset, tensor.extent_bytes,
                      tensor.cached_bytes});
  }
  drop_repeated(shares);
  for (const Share& share : shares) {
    named.groups[share.group].bytes += share.extent;
    named.groups[share.group].cached_bytes += share.cached;
  }
  return std::move(named.groups);
}

}  // namespace weightmap::cli
