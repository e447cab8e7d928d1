// Which tensors a pattern stands for.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "weightmap/named_tensor.hpp"

using namespace weightmap;
using Names = std::vector<std::string>;

namespace {

Names names_of(const Checkpoint& checkpoint, std::string_view pattern) {
  Names names;
  for (const std::size_t index : match_tensors(checkpoint, pattern))
    names.emplace_back(checkpoint.tensors()[index].name);
  return names;
}

}  // namespace

TEST_CASE("a pattern stands for the names that match it, in the order of the file") {
  const Checkpoint opened = test::opened(test::data / "state_dict.pt");
  CHECK(names_of(opened, "layers.?.weight") == Names{"layers.0.weight", "layers.1.weight"});
  CHECK(names_of(opened, "layers.0.*") == Names{"layers.0.weight", "layers.0.bias"});
  CHECK(names_of(opened, "steps") == Names{"steps"});
  CHECK(names_of(opened, "*").size() == 7);
  CHECK(names_of(opened, "layers").empty());
}
