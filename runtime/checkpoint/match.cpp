#include "weightmap/checkpoint.hpp"
#include "weightmap/name_pattern.hpp"

namespace weightmap {

std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint, std::string_view pattern) {
  const NamePattern compiled(pattern);
  std::vector<std::size_t> found;
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (tensor.name == pattern || compiled.matches(tensor.name)) found.push_back(tensor.index);
  return found;
}

}  // namespace weightmap
