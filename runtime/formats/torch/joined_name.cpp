#include "runtime/formats/torch/joined_name.hpp"

#include <algorithm>

#include "runtime/formats/torch/key_text.hpp"

namespace weightmap::torch {

std::string joined_name(const value::Tree& tree, const std::vector<PathNode>& paths,
                        std::uint32_t path, const value::Cell& key) {
  if (path == TensorSpec::is_root) return {};
  std::vector<std::uint32_t> chain;
  for (std::uint32_t node = path; paths[node].depth != 0; node = paths[node].parent)
    chain.push_back(node);
  std::string name;
  std::for_each(chain.rbegin(), chain.rend(), [&](std::uint32_t node) {
    name.append(KeyText(tree, paths[node].key).text()).push_back('.');
  });
  return name.append(KeyText(tree, key).text());
}

}  // namespace weightmap::torch
