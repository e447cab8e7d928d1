#include "runtime/catalog/catalog.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/catalog/builder.hpp"

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
  for (std::size_t i = 0; i < names.size(); ++i) {
    Entry entry{};
    entry.file_offset = i;
    entry.name = builder.add_text(names[i]);
    entry.path = {catalog::Path::is_name, 1};
    entry.nbytes = 4;
    builder.add_entry(entry);
  }
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
}

TEST_CASE("finds the empty name") { CHECK(catalog_of({"", "a"}).find("") == 0); }

TEST_CASE("answers from an empty catalog") { CHECK(catalog_of({}).find("a") == Catalog::none); }

TEST_CASE("marks the first of two equal names as ambiguous") {
  const Catalog made = catalog_of({"a", "b", "a"});
  CHECK(made.find("a") == 0);
  CHECK((made[0].flags & Entry::ambiguous) != 0);
  CHECK((made[1].flags & Entry::ambiguous) == 0);
}

TEST_CASE("works at another address") {
  const Catalog made = catalog_of({"first", "second"});
  bytes::Buffer copy(made.block().size(), memory());
  std::memcpy(copy.data(), made.block().data(), copy.size());
  const Catalog moved(std::move(copy));
  CHECK(moved.find("second") == 1);
  CHECK(moved.name(moved[0]) == "first");
  CHECK(moved.text(moved.storages()[0].key) == "0");
  CHECK(moved.storages()[0].payload_offset == 6592);
  CHECK(moved.storages()[0].crc32 == 7);
  CHECK(moved.location(moved[0]) == "cpu");
}

TEST_CASE("takes a joined name apart into its path") {
  catalog::Counts counts;
  counts.tensors = 1;
  counts.path_parts = 3;
  counts.string_bytes = 9;
  CatalogBuilder builder(counts, memory());
  Entry entry{};
  entry.name = builder.add_text("a.b.17.cd");
  entry.path = {builder.path_position(), 3};
  builder.add_path_part(3, false);
  builder.add_path_part(2, true);
  builder.add_path_part(2, false);
  builder.add_entry(entry);
  const Catalog made = std::move(builder).finish();
  std::string parts;
  made.visit_path(made[0], [&](const Catalog::PathText& part) {
    parts += std::string(part.text) + (part.is_integer ? "#" : "|");
  });
  CHECK(parts == "a.b|17#cd|");
  CHECK(made.path_length(made[0]) == 3);
}

TEST_CASE("says the largest value when the tensors' bytes do not fit 64 bits") {
  catalog::Counts counts;
  counts.tensors = 2;
  counts.string_bytes = 2;
  CatalogBuilder builder(counts, memory());
  for (const char* name : {"a", "b"}) {
    Entry entry{};
    entry.name = builder.add_text(name);
    entry.nbytes = ~std::uint64_t{0} - 1;
    builder.add_entry(entry);
  }
  CHECK(std::move(builder).finish().tensor_bytes() == ~std::uint64_t{0});
}
