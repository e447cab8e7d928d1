// The folders that torch.distributed.checkpoint wrote in two processes, in each layout: literal
// values, whichever file has them. tests/data/make_dcp_fixtures.py made them.
#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"

using namespace weightmap;
using Sizes = std::vector<std::int64_t>;
using Floats = std::vector<float>;

namespace {

template <class T = float>
std::vector<T> values(const Checkpoint& checkpoint, std::string_view name, std::size_t count,
                      const std::optional<Box>& box = {}) {
  std::vector<T> read(count);
  REQUIRE_OK(gather(checkpoint, name, box, std::as_writable_bytes(std::span(read))));
  return read;
}

Floats counted(float from) {
  Floats all(30);
  std::iota(all.begin(), all.end(), from);
  return all;
}

Sizes strides(const Checkpoint& checkpoint, std::string_view name) {
  const NamedTensor tensor = checkpoint.get(name).value();
  return {tensor.view.strides().begin(), tensor.view.strides().end()};
}

std::size_t pieces_of(const Checkpoint& checkpoint, std::string_view name) {
  const WholeTensor whole = whole_tensor(checkpoint, name).value();
  return whole.piece_count;
}

}  // namespace

TEST_CASE("folders that torch wrote") {
  for (const char* layout : {"default", "per_item", "threads", "per_rank"}) {
    CAPTURE(layout);
    const Checkpoint checkpoint = test::opened(test::data / "dcp" / layout);
    CHECK(checkpoint.tensors().size() == 11);
    CHECK(checkpoint.info().tensor_bytes == 452);
    CHECK(checkpoint.info().unsupported.empty());
    const Value root = checkpoint.values().value();
    CHECK(root.find("lr")->real() == 0.1);
    CHECK(root.find("list")->size() == 2);
    CHECK(checkpoint.info().names_torch_safe_only == false);
    CHECK(pieces_of(checkpoint, "model.rows") == 2);
    CHECK(pieces_of(checkpoint, "model.columns") == 2);
    CHECK(pieces_of(checkpoint, "model.replicated") == 1);
    CHECK(pieces_of(checkpoint, "model.short") == 1);  // of which the other process has nothing
    CHECK(values(checkpoint, "model.rows", 30) == counted(0));
    CHECK(values(checkpoint, "model.columns", 30) == counted(100));
    CHECK(values(checkpoint, "model.replicated", 30) == counted(200));
    CHECK(values(checkpoint, "model.rows", 4, Box{{2, 1}, {2, 2}}) == Floats{13, 14, 19, 20});
    CHECK(values(checkpoint, "model.columns", 4, Box{{1, 2}, {2, 2}}) ==
          Floats{108, 109, 114, 115});
    CHECK(values(checkpoint, "model.columns[0:5, 3:6]", 3, Box{{0, 0}, {1, 3}}) ==
          Floats{103, 104, 105});
    CHECK(values(checkpoint, "model.short", 4) == Floats{0, 1, 2, 3});
    // Stored as it lay in memory, which the metadata does not say.
    CHECK(strides(checkpoint, "model.transposed") == Sizes{1, 4});
    CHECK(values(checkpoint, "model.transposed", 12) ==
          Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
    CHECK(values<std::uint16_t>(checkpoint, "model.0.weight", 6) ==
          std::vector<std::uint16_t>{0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0});
    CHECK(values<std::int64_t>(checkpoint, "step", 1) == std::vector<std::int64_t>{3});
    CHECK(values(checkpoint, "list.0", 2) == Floats{1, 1});
    CHECK(values(checkpoint, "list.1.empty", 0).empty());
    const NamedTensor rows = checkpoint.get("model.rows[3:5, 0:6]").value();
    CHECK(rows.requires_grad);
  }
}

TEST_CASE("names of torch's folders lead to the paths of the state") {
  const Checkpoint checkpoint = test::opened(test::data / "dcp" / "default");
  const NamedTensor weight = checkpoint.get("model.0.weight").value();
  CHECK(checkpoint.path(weight.index).size() == 2);
  const NamedTensor first = checkpoint.get("list.0").value();
  CHECK(checkpoint.path(first.index).size() == 2);
}
