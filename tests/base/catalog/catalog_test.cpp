#include "runtime/base/catalog/catalog.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory_resource>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/catalog/builder.hpp"

using namespace weightmap;
using catalog::Catalog;
using catalog::CatalogBuilder;
using catalog::Entry;

namespace {

std::pmr::memory_resource& memory() { return *std::pmr::new_delete_resource(); }

// A catalog of scalars with these names, all in storage "0" at "cpu".
Catalog catalog_of(const std::vector<std::string>& names) {
  catalog::Counts counts;
  counts.tensors = names.size();
  counts.storages = 1;
  counts.locations = 1;
  counts.string_bytes = 4;
  for (const std::string& name : names) counts.string_bytes += name.size();
  CatalogBuilder builder(counts, memory());
  builder.add_storage("0", 6592, 64, 7);
  builder.add_location("cpu");
  for (const std::string& name : names)
    REQUIRE(builder.add_tensor({.name = builder.add_text(name),
                                .path = {catalog::Path::is_name, 1},
                                .dims = nullptr,
                                .storage_offset = 0,
                                .storage = 0,
                                .location = 0,
                                .dtype = DType::float32,
                                .rank = 0,
                                .flags = 0}));
  return std::move(builder).finish();
}

}  // namespace

TEST_CASE("finds each of many names and none besides") {
  std::vector<std::string> names;
  for (int i = 0; i < 10000; ++i) names.push_back("layers." + std::to_string(i) + ".weight");
  const Catalog made = catalog_of(names);
  CHECK(made.size() == 10000);
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(made.find(names[i]) == i);
  for (int i = 0; i < 1000; ++i) CHECK(made.find("layer." + std::to_string(i)) == Catalog::none);
  CHECK(made.find("") == Catalog::none);
  CHECK(made.tensor_bytes() == 40000);
  CHECK(catalog_of({"", "a"}).find("") == 0);
  CHECK(catalog_of({}).find("a") == Catalog::none);
}

TEST_CASE("marks the first of two equal names as ambiguous") {
  const Catalog made = catalog_of({"a", "b", "a"});
  CHECK(made.find("a") == 0);
  CHECK((made[0].flags & Entry::ambiguous) != 0);
  CHECK((made[1].flags & Entry::ambiguous) == 0);
}

TEST_CASE("equal shapes share their dims, wherever in memory they lie") {
  using Dims = std::vector<std::int64_t>;
  const std::vector<Dims> shapes = {{2, 3, 3, 1}, {6, 1}, {1, 6, 6, 1}};
  const auto made_of = [](const std::vector<const Dims*>& tensors) {
    CatalogBuilder builder({tensors.size(), 1, 4 * tensors.size(), 0, 1, 1 + 3}, memory());
    builder.add_storage("0", 4096, 24, 0);
    builder.add_location("cpu");
    for (const Dims* dims : tensors)
      REQUIRE(builder.add_tensor({{},
                                  {0, 0},
                                  dims->data(),
                                  0,
                                  0,
                                  0,
                                  DType::float32,
                                  static_cast<std::uint8_t>(dims->size() / 2),
                                  0}));
    const Catalog made = std::move(builder).finish();
    std::vector<std::uint32_t> places;
    for (const Entry& entry : made.entries()) places.push_back(entry.dims);
    return places;
  };
  std::vector<const Dims*> shared, own;
  std::deque<Dims> copies;
  for (std::size_t i = 0; i < 300; ++i) {
    shared.push_back(&shapes[i % 3]);
    own.push_back(&copies.emplace_back(shapes[i % 3]));
  }
  const std::vector<std::uint32_t> places = made_of(shared);
  CHECK(made_of(own) == places);
  CHECK(std::set(places.begin(), places.end()) == std::set<std::uint32_t>{0, 4, 6});
}

TEST_CASE("takes a joined name apart into its path") {
  catalog::Counts counts;
  counts.tensors = 1;
  counts.storages = 1;
  counts.path_parts = 3;
  counts.string_bytes = 9;
  CatalogBuilder builder(counts, memory());
  builder.add_storage("", 0, 4, 0);
  const catalog::Path path{builder.path_position(), 3};
  builder.add_path_part(3, false);
  builder.add_path_part(2, true);
  builder.add_path_part(2, false);
  REQUIRE(builder.add_tensor(
      {builder.add_text("a.b.17.cd"), path, nullptr, 0, 0, 0, DType::float32, 0, 0}));
  const Catalog made = std::move(builder).finish();
  std::string parts;
  made.visit_path(made[0], [&](const Catalog::PathText& part) {
    parts += std::string(part.text) + (part.is_integer ? "#" : "|");
  });
  CHECK(parts == "a.b|17#cd|");
  CHECK(made.path_length(made[0]) == 3);
}

// A catalog of one tensor in a storage of 64 bytes at 4096.
struct OneTensor {
  explicit OneTensor(const std::vector<std::int64_t>& sizes_and_strides, std::int64_t offset = 0,
                     DType dtype = DType::float32)
      : dims(sizes_and_strides), builder({2, 1, 2 * dims.size(), 0, 0, 1}, memory()) {
    builder.add_storage("0", 4096, 64, 0);
    input = {{}, {0, 0}, dims.data(), offset,
             0,  0,      dtype,       static_cast<std::uint8_t>(dims.size() / 2),
             0};
  }
  std::string refusal() {
    REQUIRE_FALSE(builder.add_tensor(input));
    return builder.explain(input);
  }
  Entry added() {
    REQUIRE(builder.add_tensor(input));
    return std::move(builder).finish()[0];
  }

  std::vector<std::int64_t> dims;
  CatalogBuilder builder;
  catalog::TensorInput input;
};

TEST_CASE("proves that a view lies in its storage, to the last element") {
  CHECK(OneTensor({4, 1}, 12).added().position == 4096 + 48);
  CHECK(OneTensor({4, 4, 4, 1}).added().extent == 64);
  CHECK(OneTensor({16, 1}, 0, DType::float32).added().nbytes == 64);
  CHECK(OneTensor({4, 1}, 13).refusal() ==
        "reaches beyond its storage \"0\" of 64 bytes: storage offset 13, shape [4], strides [1]");
  OneTensor({5, 4, 4, 1}).refusal();
  OneTensor({4, 4, 5, 1}).refusal();
  OneTensor({9, 1}, 0, DType::float64).refusal();
}

TEST_CASE("refuses numbers that are negative or wrap") {
  constexpr std::int64_t big = std::int64_t{1} << 62;
  CHECK(OneTensor({-1, 1}).refusal() == "has size -1 in dimension 0");
  CHECK(OneTensor({-4, -4, 4, 1}).refusal() == "has size -4 in dimension 0");
  CHECK(OneTensor({4, 4, 4, -1}).refusal() == "has stride -1 in dimension 1");
  OneTensor({4, 1}, -1).refusal();
  OneTensor({big, 0}).refusal();
  OneTensor({2, big}).refusal();
  OneTensor({3, 3, big, big}).refusal();
  OneTensor({1, 1}, big).refusal();
  OneTensor({1, 1}, std::numeric_limits<std::int64_t>::max()).refusal();
}

TEST_CASE("accepts an empty view wherever it begins, and an expanded one within its storage") {
  CHECK(OneTensor({0, 1}, std::int64_t{1} << 40).added().extent == 0);
  CHECK(OneTensor({1 << 20, 4, 0, 1}).added().extent == 16);
}

// The most slots that one lookup of these names could pass.
std::size_t longest_run(const Catalog& catalog) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (std::uint64_t slot : catalog.slots()) {
    run = slot == 0 ? 0 : run + 1;
    longest = std::max(longest, run);
  }
  return longest;
}

TEST_CASE("names that were chosen to crowd together do not") {
  std::vector<std::string> names;
  for (int i = 0; names.size() < 2000; ++i) {
    std::string name = "w" + std::to_string(i);
    if ((catalog::hash_name(name, 0) & 4095) < 64) names.push_back(std::move(name));
  }
  names.push_back(names.front());
  const Catalog made = catalog_of(names);
  CHECK(longest_run(made) < 300);
  for (std::size_t i = 1; i < 2000; ++i) REQUIRE(made.find(names[i]) == i);
  CHECK(made.find(names.front()) == 0);
  CHECK((made[0].flags & Entry::ambiguous) != 0);
  CHECK(made.find("w") == Catalog::none);
}

TEST_CASE("says the largest value when the tensors' bytes do not fit 64 bits") {
  const std::vector<std::int64_t> dims{std::int64_t{1} << 62, 0};
  CatalogBuilder builder({8, 1, 2, 0, 0, 1}, memory());
  builder.add_storage("0", 0, 1, 0);
  for (int i = 0; i < 8; ++i)
    REQUIRE(builder.add_tensor({{}, {0, 0}, dims.data(), 0, 0, 0, DType::uint8, 1, 0}));
  CHECK(std::move(builder).finish().tensor_bytes() == ~std::uint64_t{0});
}
