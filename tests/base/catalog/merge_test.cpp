// One catalog of several.
#include "runtime/base/catalog/merge.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#include "runtime/base/catalog/builder.hpp"
#include "tests/support/failures.hpp"
#include "weightmap/tensor_view.hpp"

using namespace weightmap;
using catalog::Catalog;
using catalog::CatalogBuilder;
using catalog::Entry;
using catalog::MergePart;

namespace {

constexpr std::uint32_t no_limit = std::numeric_limits<std::uint32_t>::max();

std::pmr::memory_resource& memory() { return *std::pmr::new_delete_resource(); }

// A tensor of bytes, with a storage of its own that is called as it unless `storage` is given.
struct Given {
  std::string name;
  std::vector<std::int64_t> dims = {4, 1};  // sizes, then strides
  int storage = -1;                         // one of those of the file
  std::int64_t storage_offset = 0;
  std::string location = "cpu";
  unsigned flags = 0;
  std::vector<std::pair<std::uint32_t, bool>> path = {};  // lengths, and whether it is an integer
};

struct Stored {
  std::string key;
  std::uint64_t position;
  std::uint64_t nbytes;
  std::uint32_t crc32;
};

Catalog made(const std::vector<Given>& tensors, const std::vector<Stored>& storages = {}) {
  catalog::Counts counts;
  counts.tensors = tensors.size();
  counts.storages = tensors.size() + storages.size();
  for (const Given& tensor : tensors) {
    counts.dims += tensor.dims.size();
    counts.path_parts += tensor.path.size();
    counts.locations += 1;
    counts.string_bytes += tensor.name.size() + tensor.location.size();
  }
  for (const Stored& storage : storages) counts.string_bytes += storage.key.size();
  CatalogBuilder builder(counts, memory());
  for (const Stored& storage : storages)
    builder.add_storage(storage.key, storage.position, storage.nbytes, storage.crc32);
  auto next = static_cast<std::uint32_t>(storages.size());
  std::uint16_t locations = 0;
  std::uint64_t position = 100;
  for (const Given& tensor : tensors) {
    builder.add_location(tensor.location);
    catalog::TensorInput input{};
    input.name = builder.add_text(tensor.name);
    input.path = {catalog::Path::is_name, 1};
    if (!tensor.path.empty())
      input.path = {builder.path_position(), static_cast<std::uint32_t>(tensor.path.size())};
    for (const auto& [length, is_integer] : tensor.path) builder.add_path_part(length, is_integer);
    input.storage = static_cast<std::uint32_t>(tensor.storage);
    if (tensor.storage < 0) {
      builder.add_storage(input.name, position, 64, 0);
      position += 64;
      input.storage = next++;
    }
    input.dims = tensor.dims.data();
    input.rank = static_cast<std::uint8_t>(tensor.dims.size() / 2);
    input.storage_offset = tensor.storage_offset;
    input.location = locations++;
    input.dtype = DType::uint8;
    input.flags = static_cast<std::uint8_t>(tensor.flags);
    REQUIRE(builder.add_tensor(input));
  }
  return std::move(builder).finish();
}

Catalog merged(const std::vector<MergePart>& parts, std::uint32_t most = no_limit) {
  return catalog::merge(parts, most, memory()).value();
}

// "name at position in storage of source; ..."
std::string listed(const Catalog& catalog) {
  std::string text;
  for (const Entry& entry : catalog.entries()) {
    const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
    text += (text.empty() ? "" : "; ") + std::string(catalog.name(entry)) + " at " +
            std::to_string(entry.position) + " in " + std::string(catalog.text(storage.key)) +
            " of " + std::to_string(storage.source);
  }
  return text;
}

}  // namespace

TEST_CASE("tensors of all parts come in the order of the parts, at the positions of their files") {
  const Catalog first = made({{"b"}, {"a"}});
  const Catalog second = made({{"c"}});
  const Catalog both = merged({{&first, 0, 1}, {&second, 2097152, 2}});
  CHECK(listed(both) == "b at 100 in b of 1; a at 164 in a of 1; c at 2097252 in c of 2");
  CHECK(both.find("a") == 1);
  CHECK(both.find("c") == 2);
  CHECK(both.find("d") == Catalog::none);
  CHECK(both.tensor_bytes() == 12);
  REQUIRE(both.storages().size() == 3);
  CHECK(both.storages()[2].position == 2097252);
  CHECK(both.storages()[2].nbytes == 64);
  CHECK(listed(merged({{&second, 0, 1}, {&first, 1000, 2}})) ==
        "c at 100 in c of 1; b at 1100 in b of 2; a at 1164 in a of 2");
}

TEST_CASE("only tensors that are chosen are taken, with the storages that they need") {
  const Catalog part = made({{"a", {4, 1}, 0}, {"b", {4, 1}, 1}, {"c", {4, 1}, 1, 8}, {"d"}},
                            {{"0", 1000, 64, 11}, {"1", 2000, 64, 22}, {"2", 3000, 64, 33}});
  const Catalog chosen = merged({{&part, 50, 3, {false, true, true, false}}});
  CHECK(listed(chosen) == "b at 2050 in 1 of 3; c at 2058 in 1 of 3");
  REQUIRE(chosen.storages().size() == 1);
  CHECK(chosen.storages()[0].crc32 == 22);
  CHECK(chosen.storages()[0].nbytes == 64);
  CHECK(chosen[1].storage_offset == 8);
  CHECK(chosen.find("a") == Catalog::none);
  CHECK(chosen.tensor_bytes() == 8);
}

TEST_CASE("nothing chosen gives an empty catalog") {
  const Catalog part = made({{"a"}, {"b"}});
  const Catalog none = merged({{&part, 0, 0, {false, false}}});
  CHECK(none.size() == 0);
  CHECK(none.storages().empty());
  CHECK(none.find("a") == Catalog::none);
  CHECK(merged({}).size() == 0);
  const Catalog empty = made({});
  CHECK(listed(merged({{&empty, 0, 0}, {&part, 0, 1}, {&empty, 0, 2}})) ==
        "a at 100 in a of 1; b at 164 in b of 1");
}

TEST_CASE("storages of one key in two files stay two storages") {
  const Catalog first = made({{"a", {4, 1}, 0}}, {{"0", 1000, 64, 1}});
  const Catalog second = made({{"b", {4, 1}, 0}}, {{"0", 1000, 64, 2}});
  const Catalog both = merged({{&first, 0, 0}, {&second, 4096, 1}});
  CHECK(listed(both) == "a at 1000 in 0 of 0; b at 5096 in 0 of 1");
  REQUIRE(both.storages().size() == 2);
  CHECK(both.storages()[0].crc32 == 1);
  CHECK(both.storages()[1].crc32 == 2);
}

TEST_CASE("tensors that share a storage share it afterwards") {
  const Catalog part = made({{"x", {2, 1}, 0, 2}, {"y"}, {"z", {2, 1}, 0, 4}}, {{"0", 500, 8, 9}});
  const Catalog copy = merged({{&part, 0, 0}});
  CHECK(listed(copy) == "x at 502 in 0 of 0; y at 100 in y of 0; z at 504 in 0 of 0");
  CHECK(copy[0].storage == copy[2].storage);
  CHECK(copy.storages().size() == 2);
}

TEST_CASE("shapes, strides, types and flags are those of the part") {
  const Catalog part = made({{"a", {2, 3, 1, 2}, -1, 5, "cpu", Entry::requires_grad},
                             {"b", {}, -1, 0, "cpu", TensorView::foreign_order},
                             {"c", {0, 7, 7, 1}, -1, 0, "cpu", Entry::parameter | Entry::buffer}});
  const Catalog copy = merged({{&part, 0, 0}});
  REQUIRE(copy.size() == 3);
  REQUIRE(copy[0].rank == 2);
  CHECK(std::vector<std::int64_t>(copy.dims(copy[0]), copy.dims(copy[0]) + 4) ==
        std::vector<std::int64_t>{2, 3, 1, 2});
  CHECK(copy[0].dtype == DType::uint8);
  CHECK(copy[0].extent == 6);
  CHECK(copy[0].nbytes == 6);
  CHECK(copy[0].position == 105);
  CHECK(copy[0].flags == Entry::requires_grad);
  CHECK(copy[1].rank == 0);
  CHECK(copy[1].flags == TensorView::foreign_order);
  CHECK(copy[2].flags == (Entry::parameter | Entry::buffer));
  CHECK(copy[2].nbytes == 0);
}

TEST_CASE("locations are kept, each once") {
  const Catalog first = made({{"a", {4, 1}, -1, 0, "cuda:1"}, {"b"}});
  const Catalog second = made({{"c"}, {"d", {4, 1}, -1, 0, "cuda:1"}, {"e", {4, 1}, -1, 0, ""}});
  const Catalog both = merged({{&first, 0, 0}, {&second, 0, 1}});
  REQUIRE(both.size() == 5);
  CHECK(both.location(both[0]) == "cuda:1");
  CHECK(both.location(both[1]) == "cpu");
  CHECK(both.location(both[2]) == "cpu");
  CHECK(both.location(both[3]) == "cuda:1");
  CHECK(both.location(both[4]).empty());
  CHECK(both[0].location == both[3].location);
  CHECK(both[1].location == both[2].location);
}

TEST_CASE("paths are kept, also behind tensors that are not chosen") {
  const Catalog part =
      made({{"model.0.w", {4, 1}, -1, 0, "cpu", 0, {{5, false}, {1, true}, {1, false}}},
            {"a.b"},
            {"list.12", {4, 1}, -1, 0, "cpu", 0, {{4, false}, {2, true}}}});
  const auto path = [](const Catalog& catalog, const char* name) {
    std::string text;
    catalog.visit_path(catalog[catalog.find(name)], [&text](const Catalog::PathText& step) {
      text += std::string(step.text) + (step.is_integer ? "# " : " ");
    });
    return text;
  };
  const Catalog all = merged({{&part, 0, 0}});
  CHECK(path(all, "model.0.w") == "model 0# w ");
  CHECK(path(all, "a.b") == "a.b ");
  CHECK(path(all, "list.12") == "list 12# ");
  CHECK(path(merged({{&part, 0, 0, {false, true, true}}}), "list.12") == "list 12# ");
}

TEST_CASE("a name that is in two parts is ambiguous, the first of them marked") {
  const Catalog first = made({{"a"}, {"b"}});
  const Catalog second = made({{"b"}, {"c"}});
  const Catalog both = merged({{&first, 0, 0}, {&second, 1000, 1}});
  REQUIRE(both.size() == 4);
  CHECK((both[0].flags & Entry::ambiguous) == 0);
  CHECK((both[1].flags & Entry::ambiguous) != 0);
  CHECK(both.find("b") == 1);
  CHECK((both[2].flags & Entry::ambiguous) == 0);
  const Catalog chosen = merged({{&first, 0, 0, {true, false}}, {&second, 1000, 1}});
  CHECK((chosen[chosen.find("b")].flags & Entry::ambiguous) == 0);
  CHECK(listed(chosen) == "a at 100 in a of 0; b at 1100 in b of 1; c at 1164 in c of 1");
}

TEST_CASE("a name that was ambiguous in a part is so only if both are chosen") {
  const Catalog part = made({{"a"}, {"a"}});
  REQUIRE((part[0].flags & Entry::ambiguous) != 0);
  const Catalog first = merged({{&part, 0, 0, {true, false}}});
  CHECK((first[0].flags & Entry::ambiguous) == 0);
  const Catalog both = merged({{&part, 0, 0}});
  CHECK((both[0].flags & Entry::ambiguous) != 0);
}

TEST_CASE("takes as many tensors as the limit and not one more") {
  const Catalog first = made({{"a"}, {"b"}});
  const Catalog second = made({{"c"}, {"d"}});
  CHECK(merged({{&first, 0, 0}, {&second, 0, 1}}, 4).size() == 4);
  CHECK(merged({{&first, 0, 0}, {&second, 0, 1, {true, false}}}, 3).size() == 3);
  const std::vector<MergePart> parts = {{&first, 0, 0}, {&second, 0, 1}};
  CHECK_FAILS(catalog::merge(parts, 3, memory()), ErrorCode::limit_exceeded,
              "the files have 4 tensors, the limit is 3");
}
