// What is remembered of demands: the order of the first ones, and no more than there are tensors.
#include "runtime/checkpoint/demand_log.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "runtime/base/catalog/builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::data;
using Order = std::vector<std::size_t>;

namespace {

struct Extent {
  std::uint64_t offset;
  std::uint64_t length;
};

TensorTable table_of(const std::vector<Extent>& extents) {
  catalog::Counts counts;
  counts.tensors = extents.size();
  counts.storages = extents.size();
  counts.dims = 2 * extents.size();
  counts.string_bytes = 1;
  catalog::CatalogBuilder builder(counts, *std::pmr::new_delete_resource());
  const catalog::Text name = builder.add_text("a");
  std::vector<std::int64_t> dims;
  for (const Extent& extent : extents) {
    builder.add_storage("", extent.offset, extent.length, 0);
    dims.insert(dims.end(), {static_cast<std::int64_t>(extent.length), 1});
  }
  for (std::uint32_t i = 0; i < extents.size(); ++i)
    REQUIRE(builder.add_tensor(
        {name, {catalog::Path::is_name, 1}, &dims[2 * i], 0, i, 0, DType::uint8, 1, 0}));
  return {std::move(builder).finish(), {}};
}

Order order_of(const std::vector<Extent>& extents, const std::vector<std::uint64_t>& demanded) {
  const TensorTable tensors = table_of(extents);
  DemandLog log;
  for (std::uint64_t offset : demanded) log.note(offset, tensors);
  return log.order(tensors);
}

}  // namespace

TEST_CASE("keeps the order of the first demands") {
  CHECK(order_of({{0, 10}, {10, 10}, {20, 10}}, {20, 0, 20, 0, 10}) == Order{2, 0, 1});
  CHECK(order_of({{0, 10}, {10, 10}}, {}).empty());
}

TEST_CASE("knows a tensor by any of its bytes, wherever it lies in the list") {
  CHECK(order_of({{200, 50}, {0, 100}}, {99, 249}) == Order{1, 0});
}

TEST_CASE("names nothing for bytes that no tensor has") {
  CHECK(order_of({{100, 100}, {300, 100}}, {99, 200, 299, 400}).empty());
  CHECK(order_of({{100, 0}}, {100}).empty());
  CHECK(order_of({}, {0}).empty());
}

TEST_CASE("of tensors that share bytes it names the first in the list") {
  const std::vector<Extent> shared = {{20, 10}, {0, 100}, {20, 10}, {90, 30}, {110, 50}};
  CHECK(order_of(shared, {20}) == Order{0});
  CHECK(order_of(shared, {19}) == Order{1});
  CHECK(order_of(shared, {30}) == Order{1});
  CHECK(order_of(shared, {99}) == Order{1});
  CHECK(order_of(shared, {100}) == Order{3});
  CHECK(order_of(shared, {119}) == Order{3});
  CHECK(order_of(shared, {120}) == Order{4});
  CHECK(order_of(shared, {120, 110, 95, 25}) == Order{4, 3, 1, 0});
}

TEST_CASE("loses nothing however many views of one tensor come first") {
  const TensorTable tensors = table_of({{0, 100000}, {100000, 10}});
  DemandLog log;
  for (std::uint64_t offset = 0; offset < 100000; ++offset) log.note(offset, tensors);
  log.note(100000, tensors);
  CHECK(log.order(tensors) == Order{0, 1});
  log.note(5, tensors);
  CHECK(log.order(tensors) == Order{0, 1});
}

TEST_CASE("takes notes from many threads") {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 4000; ++i) extents.push_back({i, 1});
  const TensorTable tensors = table_of(extents);
  DemandLog log;
  std::vector<std::thread> threads;
  for (std::uint64_t first = 0; first < 4; ++first)
    threads.emplace_back([&log, &tensors, first] {
      for (std::uint64_t i = first; i < 4000; i += 4) log.note(i, tensors);
    });
  for (std::thread& thread : threads) thread.join();
  const Order order = log.order(tensors);
  CHECK(order.size() == 4000);
  // Each thread's own come in its own order.
  std::vector<std::size_t> last(4, 0);
  for (std::size_t tensor : order) {
    CHECK(last[tensor % 4] <= tensor);
    last[tensor % 4] = tensor;
  }
}

TEST_CASE("a checkpoint remembers demands for views, whole and narrowed") {
  const Checkpoint checkpoint = Checkpoint::open(data / "training.pt").value();
  CHECK(demand_order(checkpoint).empty());
  const TensorView last = checkpoint.tensors()[16].view;
  const TensorView wide = checkpoint.tensors()[5].view;
  CHECK(checkpoint.demand(last).has_value());
  CHECK(checkpoint.demand(wide.narrow(0, 3, 1).value()).has_value());
  CHECK(checkpoint.demand(checkpoint.tensors()[0].view).has_value());
  CHECK(checkpoint.demand(wide).has_value());
  CHECK(demand_order(checkpoint) == Order{16, 5, 0});
}

TEST_CASE("a view of another checkpoint is not remembered") {
  const Checkpoint checkpoint = Checkpoint::open(data / "training.pt").value();
  const Checkpoint other = Checkpoint::open(data / "training.pt").value();
  CHECK_FALSE(checkpoint.demand(other.tensors()[0].view).has_value());
  CHECK(demand_order(checkpoint).empty());
  CHECK(demand_order(other).empty());
}
