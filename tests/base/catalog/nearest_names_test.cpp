#include "runtime/base/catalog/nearest_names.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string_view> nearest(std::string_view wanted,
                                      const std::vector<std::string>& names) {
  return weightmap::catalog::nearest_names(
      wanted, names.size(), [&](std::size_t i) { return std::string_view(names[i]); });
}

using Names = std::vector<std::string_view>;

}  // namespace

TEST_CASE("names what differs by one insertion, deletion or replacement") {
  CHECK(nearest("norm.weight", {"norm.wight", "norm.weights", "norm.veight"}) ==
        Names{"norm.wight", "norm.weights", "norm.veight"});
}

TEST_CASE("names the nearest first, and three at most") {
  CHECK(nearest("blocks.10.w", {"blocks.20.v", "blocks.1.w", "blocks.20.w", "blocks.11.w", "w"}) ==
        Names{"blocks.1.w", "blocks.20.w", "blocks.11.w"});
}

TEST_CASE("names what contains the question, however long it is") {
  CHECK(nearest("wq", {"layers.0.attention.wk", "layers.0.attention.wq"}) ==
        Names{"layers.0.attention.wq"});
}

TEST_CASE("names nothing of which more than a third is other") {
  CHECK(nearest("abcdef", {"abcxyz", "abcd", "abcxy"}) == Names{"abcd"});
  CHECK(nearest("zzzz", {"steps", ""}).empty());
  CHECK(nearest("", {"a", "ab"}) == Names{"a"});
  CHECK(nearest("a", {}).empty());
}

TEST_CASE("counts edits that move what is behind them out of line") {
  // Three deletions at one end and three insertions at the other.
  CHECK(nearest("abcdefghijklmnopqr", {"defghijklmnopqrstu"}) == Names{"defghijklmnopqrstu"});
  // One more of each is beyond a third.
  CHECK(nearest("abcdefghijklmnopqr", {"efghijklmnopqrstuv"}).empty());
}

TEST_CASE("looks at no name of more than 400 bytes, and at a bounded number of bytes") {
  const std::string longest(400, 'a');
  CHECK(nearest(longest + "a", {longest}).empty());
  CHECK(nearest(longest, {longest + "a", longest.substr(1)}) == Names{longest.substr(1)});
  std::vector<std::string> crafted;  // each of which takes some ten thousand comparisons
  for (int i = 0; i < 1500; ++i) {
    crafted.push_back("x");
    for (int n = 0; n < 19; ++n) crafted.back() += std::string(20, n % 2 ? 'a' : 'b') + "x";
  }
  std::string wanted = "y";
  for (int n = 0; n < 19; ++n) wanted += std::string(20, n % 2 ? 'a' : 'b') + "y";
  CHECK(nearest(wanted, crafted).empty());
  crafted.insert(crafted.begin(), wanted.substr(1));
  crafted.push_back(wanted.substr(1));
  CHECK(nearest(wanted, crafted) == Names{wanted.substr(1)});
}
