#include "tools/residency_groups.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace weightmap::cli {
namespace {

std::string_view first_parts(std::string_view name, std::size_t depth) noexcept {
  std::size_t end = 0;
  for (std::size_t part = 0; part < depth; ++part) {
    end = name.find('.', part == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) return name;
  }
  return name.substr(0, end);
}

// A tensor's bytes in the file and the group they belong to.
struct Share {
  std::size_t group;
  std::uint64_t offset;
  std::uint64_t extent;
  std::uint64_t cached;
  auto key() const noexcept { return std::tuple(group, offset, extent); }
};

// Tied weights are one range under several names.
void drop_repeated(std::vector<Share>& shares) {
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.key() < b.key(); });
  const auto same = [](const Share& a, const Share& b) { return a.key() == b.key(); };
  shares.erase(std::unique(shares.begin(), shares.end(), same), shares.end());
}

}  // namespace

std::vector<ResidencyGroup> group_tensors(const Checkpoint& checkpoint,
                                          const ResidencyReport& report,
                                          const std::vector<std::size_t>& indices,
                                          std::size_t depth) {
  std::vector<ResidencyGroup> groups;
  std::unordered_map<std::string_view, std::size_t> group_of;
  std::vector<Share> shares;
  for (std::size_t index : indices) {
    const std::string_view name = checkpoint.tensors()[index].name;
    std::size_t group = groups.size();
    if (depth > 0) group = group_of.try_emplace(first_parts(name, depth), group).first->second;
    if (group == groups.size())
      groups.push_back({std::string(depth > 0 ? first_parts(name, depth) : name)});
    ++groups[group].tensors;
    const TensorResidency& tensor = report.tensors[index];
    shares.push_back({group, tensor.file_offset, tensor.extent_bytes, tensor.cached_bytes});
  }
  drop_repeated(shares);
  for (const Share& share : shares) {
    groups[share.group].bytes += share.extent;
    groups[share.group].cached_bytes += share.cached;
  }
  return groups;
}

}  // namespace weightmap::cli
