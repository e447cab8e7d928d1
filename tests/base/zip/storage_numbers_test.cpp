// Storages found by number: the same answers as by name, in whatever order and company they stand.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory_resource>
#include <random>
#include <string>

#include "runtime/base/zip/central_entry.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"

namespace weightmap::zip {
namespace {

using namespace test;

constexpr std::uint64_t limit = std::uint64_t{1} << 30;
using Names = std::vector<std::string>;

struct Opened {
  explicit Opened(const Names& names) : Opened(archive_of(names)) {}
  explicit Opened(const Bytes& file)
      : bytes(file),
        source(bytes),
        cache(source, *std::pmr::new_delete_resource()),
        directory(Directory::read(cache, limit)) {}

  static Bytes archive_of(const Names& names) {
    ArchiveBuilder builder;
    for (const std::string& name : names) builder.add(name, "w");
    return builder.finish();
  }
  const StorageNumbers& storages() const { return directory->storages(); }

  Bytes bytes;
  bytes::MemorySource source;
  bytes::ReadCache cache;
  Result<Directory> directory;
};

Names numbered(std::size_t count, const std::string& top = "a/") {
  Names names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(top + "data/" + std::to_string(i));
  return names;
}

Names operator+(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// Each record is found by its name, and a storage by its number exactly if it has one.
void check_all_found(const Names& names) {
  const Opened opened(names);
  REQUIRE_OK(opened.directory);
  const Directory& directory = *opened.directory;
  for (std::size_t i = 0; i < names.size(); ++i)
    REQUIRE_MESSAGE(directory.find_full(names[i]) == &directory.records()[i], names[i]);
  for (std::uint32_t number = 0; number < 2 * names.size(); ++number) {
    const Record* const by_name = directory.find("data/" + std::to_string(number));
    const std::uint32_t by_number = directory.storages().find(number);
    if (by_number != StorageNumbers::none)
      REQUIRE(by_name == &directory.records()[by_number]);
    else if (directory.storages().count() != 0 && number < names.size())
      REQUIRE(by_name == nullptr);
  }
}

TEST_CASE("numbers the storages that torch writes, in their order") {
  const Opened opened(Names{"a/data.pkl", "a/byteorder"} + numbered(120) + Names{"a/version"});
  REQUIRE_OK(opened.directory);
  CHECK(opened.storages().count() == 120);
  CHECK(opened.storages().find(0) == 2);
  CHECK(opened.storages().find(119) == 121);
  CHECK(opened.storages().find(120) == StorageNumbers::none);
  CHECK(opened.storages().find(StorageNumbers::none) == StorageNumbers::none);
}

TEST_CASE("numbers storages in bytewise order, as before torch 2.7") {
  Names names = numbered(1200);
  std::sort(names.begin(), names.end());
  REQUIRE(names[2] == "a/data/10");
  const Opened opened(Names{"a/data.pkl"} + names);
  REQUIRE_OK(opened.directory);
  CHECK(opened.storages().find(1) == 2);
  CHECK(opened.storages().find(10) == 3);
  CHECK(opened.storages().find(999) == 1200);
  check_all_found(Names{"a/data.pkl"} + names);
}

TEST_CASE("numbers storages in any order") {
  Names names = numbered(500);
  std::shuffle(names.begin(), names.end(), std::mt19937(5));  // NOLINT: the same each time
  check_all_found(names);
}

TEST_CASE("two runs of numbers with a record between them are found") {
  const Names names = numbered(100);
  const Names first(names.begin(), names.begin() + 40);
  const Names second(names.begin() + 40, names.end());
  const Names split = first + Names{"a/byteorder"} + second;
  check_all_found(split);
  const Opened opened(split);
  CHECK(opened.storages().count() == 100);
  CHECK(opened.storages().find(39) == 39);
  CHECK(opened.storages().find(40) == 41);
  check_all_found(second + first);
}

TEST_CASE("numbers with a gap are found") {
  Names names = numbered(100);
  names.erase(names.begin() + 17);
  check_all_found(names);
  CHECK(Opened(names).storages().count() == 98);  // 99 is not below the count of records
}

TEST_CASE("a number beyond the count of records is found by its name") {
  for (const std::string number : {"41", "42", "99999999", "100000000", "18446744073709551616"}) {
    const Names names = numbered(40) + Names{"a/data/" + number};
    check_all_found(names);
    const Opened opened(names);
    CHECK(opened.storages().count() == 40);
    CHECK(opened.directory->find("data/" + number) == &opened.directory->records().back());
  }
}

TEST_CASE("a run of storages that begins at the last entry") {
  check_all_found({"a/data.pkl", "a/data/0"});
  check_all_found({"a/data/0"});
  check_all_found({"a/version", "a/data.pkl", "a/data/1"});
}

TEST_CASE("what is not written as torch writes a number has none") {
  const Names odd = {
      "a/data/00",  "a/data/007", "a/data/+7",    "a/data/-7",       "a/data/ 7",
      "a/data/7 ",  "a/data/7a",  "a/data/7.",    "a/data/0x7",      "a/data/7/",
      "a/data/7/7", "a/data/",    "a/data//7",    "a/data7",         "a/7",
      "a/datb/7",   "b/data/7",   "data/7",       "a/a/data/7",      "a/data/:",
      "a/data/1:",  "a/data//",   "a/data/1e1",   "a/data/\xB7",     "a/data/\xEF\xBC\x97",
      "7",          "a/7data/7",  "a/data/1\x1F", "a/data/00000007", "/data/7"};
  const Names names = Names{"a/data.pkl"} + numbered(64) + odd;
  check_all_found(names);
  const Opened opened(names);
  CHECK(opened.storages().count() == 64);
  CHECK(opened.storages().find(7) == 8);
}

TEST_CASE("numbers under top folders of every length, and under none") {
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string top = length == 0 ? "" : std::string(length, 'm') + "/";
    const Names names = Names{top + "data.pkl"} + numbered(12, top) + Names{top + "version"};
    check_all_found(names);
    CHECK(Opened(names).storages().count() == 12);
  }
  // The same, but for one byte of the folder.
  for (std::size_t at = 0; at < 20; ++at) {
    std::string other(20, 'm');
    other[at] = 'n';
    const Names names = numbered(12, std::string(20, 'm') + "/") + Names{other + "/data/3"};
    check_all_found(names);
    CHECK(Opened(names).storages().count() == 12);
  }
}

TEST_CASE("refuses a number that is there twice, wherever the second one stands") {
  const std::string message =
      "two records are named \"a/data/7\", at bytes ";  // of both headers, see below
  for (const std::size_t at : {0u, 7u, 8u, 50u, 100u}) {
    Names names = numbered(100);
    names.insert(names.begin() + static_cast<std::ptrdiff_t>(at), "a/data/7");
    CHECK_FAILS(Opened(names).directory, ErrorCode::corrupt, message);
    std::sort(names.begin(), names.end());
    CHECK_FAILS(Opened(names).directory, ErrorCode::corrupt, message);
  }
  ArchiveBuilder builder;
  for (const std::string& name : numbered(100) + Names{"a/data/7"}) builder.add(name, "w");
  const Bytes& file = builder.finish();
  const Opened twice(file);
  CHECK_FAILS(twice.directory, ErrorCode::corrupt,
              message + std::to_string(builder.place(100).header) + " and " +
                  std::to_string(builder.place(7).header));
  CHECK(twice.directory.error().file_offset == builder.place(7).header);
}

TEST_CASE("refuses a storage that is there again under a name of another case") {
  CHECK_FAILS(Opened(numbered(100) + Names{"a/Data/7"}).directory, ErrorCode::corrupt,
              "\"a/data/7\" and \"a/Data/7\" are named alike but for case");
  CHECK_FAILS(Opened(Names{"A/data/7"} + numbered(100)).directory, ErrorCode::corrupt,
              "named alike but for case");
}

TEST_CASE("archives with few storages are indexed by name alone") {
  Names names = {"a/data.pkl", "a/one", "a/two", "a/three", "a/four", "a/data/0"};
  check_all_found(names);
  CHECK(Opened(names).storages().count() == 0);
}

TEST_CASE("refuses storages that overlap in the middle of a run") {
  ArchiveBuilder builder;
  for (const std::string& name : numbered(100)) builder.add(name, "weights");
  Bytes file = builder.finish();
  patch(file, builder.place(50).entry + 42, builder.place(49).header + 1, 4);
  CHECK_FAILS(Opened(file).directory, ErrorCode::corrupt, "\"a/data/49\" with 7 bytes runs into");
  Bytes last = builder.bytes();
  patch(last, builder.place(99).entry + 20, 5000, 4);
  patch(last, builder.place(99).entry + 24, 5000, 4);
  CHECK_FAILS(Opened(last).directory, ErrorCode::corrupt,
              "\"a/data/99\" with 5000 bytes runs into the directory");
}

// Whatever becomes of a byte of an entry: what the short way takes, the long way takes, too, and
// makes the same of it.
TEST_CASE("a plain entry is what the entry says") {
  ArchiveBuilder builder;
  builder.add("a/data/12", "weights").add("a/data/13", "more");
  const Bytes file = builder.finish();
  const std::size_t begin = builder.place(0).entry;
  const std::size_t length = 46 + 9;
  std::size_t taken = 0;
  const auto compare = [&](std::span<const std::byte> rest, std::uint64_t start) {
    Record plain{};
    const std::size_t plain_length = parse_plain_entry(rest, start, plain);
    if (plain_length == 0 || plain.full_name().find('\0') != std::string_view::npos) return;
    ++taken;
    Record record{};
    const std::size_t parsed = parse_entry(rest, {begin, start}, record).value();
    REQUIRE(parsed == plain_length);
    REQUIRE(record.header_offset == plain.header_offset);
    REQUIRE(record.stored_size == plain.stored_size);
    REQUIRE(record.size == plain.size);
    REQUIRE(record.full_name() == plain.full_name());
    REQUIRE(record.crc32 == plain.crc32);
    REQUIRE(record.method == plain.method);
    REQUIRE(record.has_descriptor == plain.has_descriptor);
  };
  for (std::size_t at = 0; at < 46; ++at) {  // the name is not looked at
    for (int value = 0; value < 256; ++value) {
      Bytes changed = file;
      changed[begin + at] = static_cast<std::byte>(value);
      compare(std::span(changed).subspan(begin), 0);
      compare(std::span(changed).subspan(begin), ~std::uint64_t{0} - 10);
      compare(std::span(changed).subspan(begin, length), 5);
    }
  }
  CHECK(taken > 1000);
  for (std::size_t cut = 0; cut < length; ++cut) {
    Record plain{};
    CHECK(parse_plain_entry(std::span(file).subspan(begin, cut), 0, plain) == 0);
  }
}

// Names that are numbers nearly, in any order and with twins, against a map.
TEST_CASE("finds what a map of the names finds, and refuses what is there twice") {
  std::mt19937 random(11);  // NOLINT: the same files each time
  const auto pick = [&random](std::size_t count) { return random() % count; };
  std::size_t refused = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 2 + pick(60);
    Names names = numbered(count);
    if (pick(3) == 0) std::shuffle(names.begin(), names.end(), random);
    if (pick(3) == 0) std::sort(names.begin(), names.end());
    for (std::size_t changes = pick(4); changes > 0; --changes) {
      std::string& name = names[pick(names.size())];
      switch (pick(4)) {
        case 0:
          name = "a/data/" + std::to_string(pick(2 * count));
          break;
        case 1:
          name.back() = static_cast<char>('.' + pick(14));
          break;
        case 2:
          name += static_cast<char>('.' + pick(14));
          break;
        default:
          name = "a/x" + std::to_string(pick(3));
      }
    }
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
    if (places.size() == names.size()) {
      check_all_found(names);
    } else {
      ++refused;
      CHECK_FAILS(Opened(names).directory, ErrorCode::corrupt, "two records are named");
    }
  }
  CHECK(refused > 50);
}

TEST_CASE("locates by number what it locates by name") {
  const auto locate = [](Opened& opened, const Names& keys, bool by_number) {
    std::vector<StorageRequest> requests;
    for (const std::string& key : keys)
      requests.push_back(
          {key, 1, 1, DType::uint8, by_number ? bytes::decimal(key) : StorageNumbers::none});
    OpenStats stats;
    return locate_storages(*opened.directory, requests, {}, opened.cache, opened.source, stats,
                           *std::pmr::new_delete_resource());
  };
  Names names = Names{"a/data.pkl"} + numbered(100) + Names{"a/data/key", "a/data/1234"};
  for (const bool is_sorted : {false, true}) {
    if (is_sorted) std::sort(names.begin(), names.end());
    Opened opened(names);
    Names keys = {"99", "key", "1234"};
    for (int i = 0; i < 99; ++i) keys.push_back(std::to_string(i));
    const auto by_number = locate(opened, keys, true);
    const auto by_name = locate(opened, keys, false);
    REQUIRE_OK(by_number);
    REQUIRE_OK(by_name);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      REQUIRE((*by_number)[i].payload_offset == (*by_name)[i].payload_offset);
      REQUIRE((*by_number)[i].record == (*by_name)[i].record);
      REQUIRE(opened.directory->records()[(*by_number)[i].record].full_name() ==
              "a/data/" + keys[i]);
    }
    for (const char* missing : {"100", "007", "1235", ""})
      CHECK_FAILS(locate(opened, {missing}, true), ErrorCode::corrupt,
                  "which the archive does not have");
  }
}

}  // namespace
}  // namespace weightmap::zip
