// The short way to a catalog against the long one, on the same files: it makes the same, or
// nothing.
#include "runtime/torch/catalog_pass.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory_resource>
#include <optional>
#include <random>
#include <string>

#include "runtime/pickle/parse.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/torch/make_catalog.hpp"
#include "runtime/torch/read_tensors.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "tests/pickle/tensor_pickle.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"

namespace weightmap::torch {
namespace {

namespace fs = std::filesystem;
using catalog::Catalog;
using catalog::Entry;
using test::Bytes;

std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();

Bytes bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return test::to_bytes(text);
}

// What both ways start from.
struct Parsed {
  explicit Parsed(const Bytes& file) : source(file), windows(source, memory) {}

  bytes::MemorySource source;
  bytes::Windows windows;
  zip::Directory directory;
  std::unique_ptr<value::Tree> tree;
  std::uint64_t alignment = 64;
  ReadLimits limits{0, {}};
};

// nullptr if the file fails before tensors are read. `pickle`: to be read in place of data.pkl.
std::unique_ptr<Parsed> parse(const Bytes& file, const std::optional<std::string>& pickle = {}) {
  auto parsed = std::make_unique<Parsed>(file);
  Result<zip::Directory> directory = zip::Directory::read(parsed->windows, 1u << 30);
  if (!directory) return nullptr;
  parsed->directory = std::move(*directory);
  const zip::Record* record = parsed->directory.find("data.pkl");
  if (record == nullptr) return nullptr;
  const auto content = zip::read_record(parsed->directory, *record, parsed->windows, 1u << 30);
  if (!content) return nullptr;
  if (const auto alignment = read_storage_alignment(parsed->directory, parsed->windows))
    parsed->alignment = *alignment;
  parsed->limits.file_offset = content->file_offset;
  const std::span<const std::byte> bytes =
      pickle ? std::as_bytes(std::span(*pickle)) : content->bytes;
  bytes::Buffer copy(bytes.size(), memory);
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  const std::span<const std::byte> view = copy.span();
  auto tree = pickle::parse(std::move(copy), view, content->file_offset,
                            {std::uint64_t{64} << 20, 1000}, memory);
  if (!tree) return nullptr;
  parsed->tree = std::move(*tree);
  return parsed;
}

struct Made {
  Catalog catalog;
  format::TensorNodes nodes{memory};
  OpenStats stats;
  std::vector<std::uint32_t> positions;  // of the nodes, by tensor; of the long way only
};

std::optional<Made> short_way(Parsed& parsed, std::uint32_t& next_mark) {
  const auto storages = zip::StorageRun::find(parsed.directory, parsed.alignment, parsed.windows);
  if (!storages) return std::nullopt;
  Made made;
  CatalogPass pass(*parsed.tree, parsed.limits, *storages, memory);
  const bool is_surveyed = pass.survey();
  next_mark = pass.next_mark();
  if (!is_surveyed) return std::nullopt;
  std::optional<Catalog> catalog = pass.make(true, made.nodes);
  if (!catalog) return std::nullopt;
  made.catalog = std::move(*catalog);
  storages->count_into(made.stats);
  made.stats.cache_hits = pass.cache_hits();
  const auto extents = storages->extents();
  REQUIRE(extents.size() == made.catalog.storages().size());
  for (std::size_t i = 0; i < extents.size(); ++i)
    REQUIRE(extents[i].payload_offset == made.catalog.storages()[i].position);
  return made;
}

Result<Made> long_way(Parsed& parsed, std::uint32_t first_mark) {
  Made made;
  auto table = read_tensors(*parsed.tree, parsed.limits, memory, first_mark);
  if (!table) return tl::unexpected<Error>(table.error());
  zip::LocateOptions options;
  options.alignment = parsed.alignment;
  const auto extents = zip::locate_storages(parsed.directory, table->storages.storages(), options,
                                            parsed.windows, parsed.source, made.stats, memory);
  if (!extents) return tl::unexpected<Error>(extents.error());
  made.stats.cache_hits = table->storages.cache_hits();
  auto catalog =
      make_catalog({*parsed.tree, *table, *extents, true, parsed.limits.file_offset}, memory);
  if (!catalog) return tl::unexpected<Error>(catalog.error());
  made.catalog = std::move(*catalog);
  for (const TensorSpec& spec : table->tensors) made.positions.push_back(spec.position);
  return made;
}

std::string path_of(const Catalog& catalog, const Entry& entry) {
  std::string path;
  catalog.visit_path(entry, [&path](const Catalog::PathText& part) {
    path += (part.is_integer ? "#" : "'") + std::string(part.text) + "/";
  });
  return path;
}

bool is_equal(const Catalog& a, const Entry& one, const Catalog& b, const Entry& other) {
  return a.name(one) == b.name(other) && path_of(a, one) == path_of(b, other) &&
         one.position == other.position && one.extent == other.extent &&
         one.nbytes == other.nbytes && one.storage_offset == other.storage_offset &&
         one.storage == other.storage && a.location(one) == b.location(other) &&
         one.dtype == other.dtype && one.rank == other.rank && one.flags == other.flags &&
         std::equal(a.dims(one), a.dims(one) + 2 * one.rank, b.dims(other));
}

bool is_equal(const Catalog& a, const catalog::StorageEntry& one, const Catalog& b,
              const catalog::StorageEntry& other) {
  return one.position == other.position && one.nbytes == other.nbytes && one.crc32 == other.crc32 &&
         one.source == other.source && a.text(one.key) == b.text(other.key);
}

// The first tensor, storage or node in which they differ. One assertion for all: an assertion costs
// more than what it asserts.
std::string difference(const Made& made, const Made& wanted) {
  const Catalog& a = made.catalog;
  const Catalog& b = wanted.catalog;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string tensor = "tensor " + std::to_string(i);
    if (!is_equal(a, a[i], b, b[i])) return tensor;
    if (a.find(a.name(a[i])) != i) return "lookup of " + tensor;
    const auto first =
        std::find(wanted.positions.begin(), wanted.positions.end(), wanted.positions[i]);
    if (made.nodes.find(wanted.positions[i]) != first - wanted.positions.begin())
      return "node of " + tensor;
  }
  std::vector<std::uint32_t> sorted = wanted.positions;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t position = 0; position < 2000; ++position)
    if (made.nodes.find(position).has_value() !=
        std::binary_search(sorted.begin(), sorted.end(), position))
      return "node at " + std::to_string(position);
  for (std::size_t i = 0; i < a.storages().size(); ++i)
    if (!is_equal(a, a.storages()[i], b, b.storages()[i])) return "storage " + std::to_string(i);
  return {};
}

// Entry by entry, storage by storage, node by node.
void check_equal(const Made& made, const Made& wanted) {
  REQUIRE(made.catalog.size() == wanted.catalog.size());
  REQUIRE(made.catalog.tensor_bytes() == wanted.catalog.tensor_bytes());
  REQUIRE(made.catalog.storages().size() == wanted.catalog.storages().size());
  REQUIRE(difference(made, wanted) == "");
  CHECK(made.stats.strategy == wanted.stats.strategy);
  CHECK(made.stats.storages_calculated == wanted.stats.storages_calculated);
  CHECK(made.stats.storages_by_directory == wanted.stats.storages_by_directory);
  CHECK(made.stats.storages_by_header == wanted.stats.storages_by_header);
  CHECK(made.stats.local_headers_read == wanted.stats.local_headers_read);
  CHECK(made.stats.cache_hits == wanted.stats.cache_hits);
}

enum class Outcome { no_tree, gave_up, made };

// The long way comes second, over the marks of the short one, and a third time over a tree of its
// own: its answer must not depend on what was tried before.
Outcome compare(const Bytes& file, const std::optional<std::string>& pickle = {}) {
  const auto parsed = parse(file, pickle);
  if (parsed == nullptr) return Outcome::no_tree;
  std::uint32_t next_mark = 0;
  const std::optional<Made> made = short_way(*parsed, next_mark);
  const Result<Made> after = long_way(*parsed, next_mark);
  const Result<Made> alone = long_way(*parse(file, pickle), 0);
  REQUIRE(after.has_value() == alone.has_value());
  if (!alone) {
    REQUIRE(after.error().code == alone.error().code);
    REQUIRE(after.error().message == alone.error().message);
    REQUIRE(after.error().file_offset == alone.error().file_offset);
    REQUIRE_FALSE(made.has_value());
    return Outcome::gave_up;
  }
  REQUIRE(after->positions == alone->positions);
  if (!made) return Outcome::gave_up;
  check_equal(*made, *alone);
  return Outcome::made;
}

const fs::path data = WEIGHTMAP_TEST_DATA;

std::string pickle_of(const Bytes& file) {
  bytes::MemorySource source(file);
  bytes::Windows windows(source, memory);
  const zip::Directory directory = zip::Directory::read(windows, 1u << 30).value();
  const auto content = zip::read_record(directory, *directory.find("data.pkl"), windows, 1u << 30);
  REQUIRE_OK(content);
  return {reinterpret_cast<const char*>(content->bytes.data()), content->bytes.size()};
}

TEST_CASE("makes the same of every fixture, or nothing") {
  std::size_t made = 0;
  for (const auto& entry : fs::directory_iterator(data)) {
    if (entry.path().extension() != ".pt") continue;
    INFO(entry.path().string());
    if (compare(bytes_of(entry.path())) == Outcome::made) ++made;
  }
  CHECK(made >= 14);
}

TEST_CASE("takes what torch writes for many tensors, new and old") {
  for (const char* name : {"many_state_dict.pt", "many_training.pt", "many_old_order.pt",
                           "state_dict.pt", "training.pt", "old_order.pt", "parameters.pt"}) {
    INFO(std::string(name));
    CHECK(compare(bytes_of(data / name)) == Outcome::made);
  }
}

TEST_CASE("gives up on what it does not know, and the long way opens it") {
  for (const char* name : {"address_keys.pt", "quantized.pt", "bare_storages.pt",
                           "colliding_names.pt", "rezipped_stored.pt", "no_tensors.pt"}) {
    INFO(std::string(name));
    CHECK(compare(bytes_of(data / name)) == Outcome::gave_up);
    CHECK(long_way(*parse(bytes_of(data / name)), 0).has_value());
  }
}

TEST_CASE("makes the same of pickles with a byte changed, or nothing") {
  std::mt19937 random(3);  // NOLINT: the same changes each time
  for (const char* name : {"many_state_dict.pt", "many_training.pt", "many_old_order.pt"}) {
    const Bytes file = bytes_of(data / name);
    const std::string pickle = pickle_of(file);
    std::size_t counts[3] = {};
    for (int round = 0; round < 400; ++round) {
      std::string changed = pickle;
      changed[random() % changed.size()] = static_cast<char>(random());
      ++counts[static_cast<int>(compare(file, changed))];
    }
    CHECK(counts[0] > 10);
    CHECK(counts[1] > 10);
    CHECK(counts[2] > 10);
  }
}

// Numbers change more than single bytes do: keys, sizes, offsets and memo ids of another tensor.
TEST_CASE("makes the same of pickles with parts exchanged, or nothing") {
  std::mt19937 random(4);  // NOLINT
  const Bytes file = bytes_of(data / "many_training.pt");
  const std::string pickle = pickle_of(file);
  for (int round = 0; round < 400; ++round) {
    std::string changed = pickle;
    const std::size_t length = 1 + random() % 60;
    const std::size_t from = random() % (pickle.size() - length);
    changed.replace(random() % (pickle.size() - length), length, pickle, from, length);
    compare(file, changed);
  }
}

TEST_CASE("makes the same of directories with a byte changed, or nothing") {
  std::mt19937 random(5);  // NOLINT
  for (const char* name : {"many_state_dict.pt", "many_old_order.pt"}) {
    const Bytes file = bytes_of(data / name);
    std::uint64_t begin = 0;
    {
      bytes::MemorySource source(file);
      bytes::Windows windows(source, memory);
      begin = zip::Directory::read(windows, 1u << 30).value().offset();
    }
    std::size_t opened = 0;
    for (int round = 0; round < 600; ++round) {
      Bytes changed = file;
      changed[begin + random() % (file.size() - begin)] = static_cast<std::byte>(random());
      if (compare(changed) == Outcome::made) ++opened;
    }
    CHECK(opened > 100);
  }
}

// --- pickles made for this ---------------------------------------------------------------------

std::string number(std::int64_t value) {
  std::string digits(8, '\0');
  std::memcpy(digits.data(), &value, 8);
  return "\x8a\x08" + digits;
}
std::string text(const std::string& value) {
  std::string length(4, '\0');
  const auto bytes = static_cast<std::uint32_t>(value.size());
  std::memcpy(length.data(), &bytes, 4);
  return "X" + length + value;
}

// A tensor of floats, none of it from the memo; `size` elements from `offset` on.
std::string tensor(const std::string& key, std::int64_t numel = 4, std::int64_t size = 4,
                   std::int64_t offset = 0, const std::string& type = "FloatStorage",
                   const std::string& location = "cpu") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + type + "\n" +
         text(key) + text(location) + number(numel) + "tQ" + number(offset) + "(" + number(size) +
         "t(" + number(1) + "t\x89" + "ccollections\nOrderedDict\n)RtR";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string made = "}(";
  for (const auto& [key, value] : items) made += text(key) + value;
  return made + "u";
}

// An archive with storages of 16 bytes.
Bytes archive(std::size_t storages, const std::string& pickle) {
  test::ArchiveBuilder builder;
  builder.add("a/data.pkl", pickle);
  for (std::size_t i = 0; i < storages; ++i)
    builder.add("a/data/" + std::to_string(i), std::string(16, 'w'));
  return builder.finish();
}
Outcome outcome(std::size_t storages, const std::string& root) {
  return compare(archive(storages, root + "."));
}

TEST_CASE("takes tied storages and nested dicts") {
  CHECK(outcome(2, dict({{"a", tensor("0")}, {"b", tensor("1")}, {"c", tensor("0", 4, 2, 2)}})) ==
        Outcome::made);
  CHECK(outcome(2, dict({{"x", dict({{"a", tensor("0")}, {"b", dict({{"c", tensor("1")}})}})},
                         {"y", dict({})}})) == Outcome::made);
  CHECK(outcome(1, tensor("0")) == Outcome::made);
  CHECK(outcome(1, "](" + tensor("0") + tensor("0") + "e") == Outcome::made);
}

TEST_CASE("takes packed tensors of more shapes than it remembers, with ties and flags") {
  constexpr std::size_t shapes = 97;
  test::TensorPickle pickle;
  test::ArchiveBuilder builder;
  std::vector<std::string> records;
  for (std::size_t i = 0; i < 600; ++i) {
    const auto rows = static_cast<std::int64_t>(i % shapes + 1);
    test::TensorPickle::Tensor tensor{
        .sizes = {rows, 2}, .strides = {2, 1}, .numel = 2 * rows, .requires_grad = i % 3 == 0};
    pickle.add("t" + std::to_string(i), std::to_string(records.size()), tensor);
    records.emplace_back(static_cast<std::size_t>(8 * rows), 'w');
    if (i % 7 == 0) {
      tensor.key_get = pickle.get(pickle.keys.back());
      tensor.offset = 1;
      tensor.sizes = {rows};
      tensor.strides = {1};
      pickle.add("tied" + std::to_string(i), "", tensor);
    }
  }
  builder.add("a/data.pkl", pickle.finish());
  for (std::size_t i = 0; i < records.size(); ++i)
    builder.add("a/data/" + std::to_string(i), records[i]);
  const Bytes file = builder.finish();
  CHECK(parse(file)->tree->packed_count() > 650);
  CHECK(compare(file) == Outcome::made);
}

TEST_CASE("takes a storage with some bytes behind its last element, and knows its size later") {
  const auto outcome_with = [](const std::string& again) {
    test::ArchiveBuilder builder;
    builder.add("a/data.pkl",
                dict({{"a", tensor("0", 2, 2, 0, "DoubleStorage")}, {"b", again}}) + ".");
    builder.add("a/data/0", std::string(18, 'w'));
    return compare(builder.finish());
  };
  CHECK(outcome_with(tensor("0", 2, 1, 1, "DoubleStorage")) == Outcome::made);
  CHECK(outcome_with(tensor("0", 1, 1, 0, "DoubleStorage")) == Outcome::gave_up);
  CHECK(outcome_with(tensor("0", 4, 4)) == Outcome::gave_up);
  CHECK(outcome_with(tensor("0", 9, 9, 0, "ShortStorage")) == Outcome::gave_up);
}

TEST_CASE("gives up where storages are not those of one torch.save") {
  const std::string a = tensor("0"), b = tensor("1"), c = tensor("2");
  CHECK(outcome(3, dict({{"a", a}, {"b", b}})) == Outcome::gave_up);             // one is not used
  CHECK(outcome(3, dict({{"a", a}, {"b", c}, {"c", b}})) == Outcome::gave_up);   // another order
  CHECK(outcome(2, dict({{"a", a}, {"b", b}, {"c", c}})) == Outcome::gave_up);   // one is missing
  CHECK(outcome(2, dict({{"a", a}, {"b", tensor("01")}})) == Outcome::gave_up);  // not a number
  CHECK(outcome(2, dict({{"a", a}, {"b", tensor("key")}})) == Outcome::gave_up);
}

TEST_CASE("gives up where a tensor contradicts itself, its storage or another") {
  const std::string a = tensor("0");
  for (const std::string& other :
       {tensor("1", 5, 5), tensor("1", 3, 3), tensor("1", 4, 5), tensor("1", 4, 4, 1),
        tensor("1", 4, -1), tensor("1", 4, 4, -1), tensor("1", -4, 1), tensor("0", 2, 2),
        tensor("0", 2, 2, 0, "DoubleStorage"), tensor("1", 4, 4, 0, "NoSuchStorage"),
        tensor("1", std::int64_t{1} << 62, 1), tensor("1", 4, std::int64_t{1} << 62)})
    CHECK(outcome(2, dict({{"a", a}, {"b", other}})) == Outcome::gave_up);
  CHECK(outcome(2, dict({{"a", a}, {"a", tensor("1")}})) == Outcome::gave_up);
  CHECK(outcome(2, dict({{"a.b", a}, {"a", dict({{"b", tensor("1")}})}})) == Outcome::gave_up);
}

TEST_CASE("the error is that of the first fault on the long way, not of the short one's first") {
  // A storage that is too short, in front of a pickle that contradicts itself further on.
  const Bytes file = archive(
      3, dict({{"a", tensor("0", 8, 8)}, {"b", tensor("1")}, {"c", tensor("1", 2, 2)}}) + ".");
  const auto parsed = parse(file);
  std::uint32_t next_mark = 0;
  CHECK_FALSE(short_way(*parsed, next_mark).has_value());
  CHECK_FAILS(long_way(*parsed, next_mark), ErrorCode::corrupt, "where it was first referred to");
}

TEST_CASE("takes several locations, and gives up on more than it has room for") {
  std::vector<std::pair<std::string, std::string>> items;
  for (int i = 0; i < 17; ++i) {
    const std::string n = std::to_string(i);
    if (i == 16) CHECK(outcome(16, dict(items)) == Outcome::made);
    items.emplace_back("t" + n, tensor(n, 4, 4, 0, "FloatStorage", "cuda:" + n));
  }
  CHECK(outcome(17, dict(items)) == Outcome::gave_up);
  CHECK(outcome(1, dict({{"a", tensor("0", 4, 4, 0, "FloatStorage", std::string(513, 'l'))}})) ==
        Outcome::gave_up);
}

TEST_CASE("keeps to the limits, and says so as the long way does") {
  const Bytes file = bytes_of(data / "many_training.pt");
  const auto tensors = static_cast<std::uint32_t>(long_way(*parse(file), 0)->catalog.size());
  for (const std::uint32_t limit : {1u, 70u, tensors - 1, tensors}) {
    const auto parsed = parse(file);
    parsed->limits.limits.tensors = limit;
    std::uint32_t next_mark = 0;
    CHECK(short_way(*parsed, next_mark).has_value() == (limit == tensors));
    CHECK(long_way(*parsed, next_mark).has_value() == (limit == tensors));
  }
  // The least memory that one way needs is the least that the other needs.
  const auto opens = [&](std::uint64_t memory_bytes, bool in_one_pass) {
    const auto parsed = parse(archive(1, dict({{"a", tensor("0")}, {"b", tensor("0")}}) + "."));
    parsed->limits.limits.base_memory = memory_bytes;
    std::uint32_t next_mark = 0;
    return in_one_pass ? short_way(*parsed, next_mark).has_value()
                       : long_way(*parsed, 0).has_value();
  };
  for (std::uint64_t bytes = 0; bytes < 1024; ++bytes)
    REQUIRE(opens(bytes, true) == opens(bytes, false));
  CHECK(opens(1024, true));
}

}  // namespace
}  // namespace weightmap::torch
