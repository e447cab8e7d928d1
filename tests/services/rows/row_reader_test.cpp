// Rows of tables that are read by their numbers.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

using namespace weightmap;
using test::opened;
using test::TemporaryFolder;

namespace {

constexpr std::size_t row_bytes = 256;
constexpr std::int64_t row_count = 1 << 16;  // 16 MiB

// Each row begins with its number.
std::string table_text(std::int64_t rows, char fill) {
  std::string text(static_cast<std::size_t>(rows) * row_bytes, fill);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::string number = std::to_string(row) + ' ';
    text.replace(static_cast<std::size_t>(row) * row_bytes, number.size(), number);
  }
  return text;
}

std::string row_text(std::int64_t row, char fill) {
  std::string text(row_bytes, fill);
  const std::string number = std::to_string(row) + ' ';
  return text.replace(0, number.size(), number);
}

// {"name": [dtype, shape, bytes]} as a safetensors file.
struct Entry {
  std::string name, dtype, shape, bytes;
};
std::string file_of(const std::vector<Entry>& entries) {
  std::string header = "{", data;
  for (const Entry& entry : entries) {
    header += (header.size() > 1 ? ",\"" : "\"") + entry.name + R"(":{"dtype":")" + entry.dtype +
              R"(","shape":)" + entry.shape + R"(,"data_offsets":[)" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + entry.bytes.size()) + "]}";
    data += entry.bytes;
  }
  return test::framed(header + "}", data);
}

struct Tables {
  TemporaryFolder folder;
  std::filesystem::path path = folder.write(
      "model.safetensors", file_of({{"before", "U8", "[5]", "12345"},
                                    {"weight", "U8", "[65536,256]", table_text(row_count, 'w')},
                                    {"scale", "I16", "[65536]", scales()},
                                    {"cube", "U8", "[2,3,4]", "abcdefghijklmnopqrstuvwx"},
                                    {"scalar", "U8", "[]", "s"},
                                    {"narrow", "U8", "[7,0]", ""},
                                    {"none", "U8", "[0,4]", ""}}));

  static std::string scales() {
    std::string text;
    for (int row = 0; row < row_count; ++row)
      text += {static_cast<char>(row), static_cast<char>(row >> 8)};
    return text;
  }
};

std::string gathered(const RowReader& rows, const std::vector<std::int64_t>& ids) {
  std::string text(ids.size() * rows.row_bytes(0), '?');
  REQUIRE_OK(rows.gather(ids, {std::as_writable_bytes(std::span(text))}));
  return text;
}

std::string texts_of(const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += row_text(id, 'w');
  return text;
}

std::vector<std::int64_t> scattered(std::size_t count) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int64_t>(i * 2654435761u % static_cast<std::size_t>(row_count)));
  return ids;
}

}  // namespace

TEST_CASE_FIXTURE(Tables, "Rows come in the order of their numbers, which may repeat") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"weight"}).value();
  CHECK(rows.table_count() == 1);
  CHECK(rows.row_count() == row_count);
  CHECK(rows.row_bytes(0) == row_bytes);
  const std::vector<std::int64_t> ids{row_count - 1, 0, 7, 0, 7, 8, 40000};
  CHECK(gathered(rows, ids) == texts_of(ids));
  CHECK(gathered(rows, {}).empty());
}

TEST_CASE_FIXTURE(Tables, "Tables that belong together are read by one call") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"weight", "scale"}).value();
  CHECK(rows.row_bytes(1) == 2);
  const std::vector<std::int64_t> ids{258, 65535, 258};
  std::string weights(3 * row_bytes, '?'), scales(6, '?');
  REQUIRE_OK(rows.gather(ids, {std::as_writable_bytes(std::span(weights)),
                               std::as_writable_bytes(std::span(scales))}));
  CHECK(weights == texts_of(ids));
  CHECK(scales == "\2\1\xff\xff\2\1");
}

TEST_CASE_FIXTURE(Tables, "A row is all that has its number along the first dimension") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"cube"}).value();
  CHECK(rows.row_bytes(0) == 12);
  CHECK(gathered(rows, {1, 0}) == "mnopqrstuvwxabcdefghijkl");
}

TEST_CASE_FIXTURE(Tables, "A checkpoint in memory has rows, too") {
  const std::string text = test::read_file(path);
  const Checkpoint checkpoint =
      Checkpoint::open_memory(std::as_bytes(std::span(text)), nullptr).value();
  const RowReader rows = RowReader::of(checkpoint, {"weight"}).value();
  CHECK(gathered(rows, {9, 1}) == texts_of({9, 1}));
}

TEST_CASE("A table in several pieces is one table") {
  TemporaryFolder folder;
  const auto shard = [](const std::string& offsets, const std::string& shape,
                        const std::string& bytes) {
    const std::string info = R"({\"w\": {\"saved_offsets\": )" + offsets + R"(}})";
    return test::framed(R"({"__metadata__":{"DCP_SHARDING_INFO":")" + info +
                            R"("},"w":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,)" +
                            std::to_string(bytes.size()) + "]}}",
                        bytes);
  };
  folder.write("shard-00001-model-00001-of-00001.safetensors", shard("[0, 0]", "[2,3]", "abcdef"));
  SUBCASE("along the first dimension") {
    folder.write("shard-00002-model-00001-of-00001.safetensors", shard("[2, 0]", "[1,3]", "ghi"));
    const Checkpoint checkpoint = opened(folder.path());
    const RowReader rows = RowReader::of(checkpoint, {"w"}).value();
    CHECK(rows.row_count() == 3);
    CHECK(gathered(rows, {2, 0, 1, 2}) == "ghiabcdefghi");
  }
  SUBCASE("along another one") {
    folder.write("shard-00002-model-00001-of-00001.safetensors", shard("[0, 3]", "[2,1]", "xy"));
    const Checkpoint checkpoint = opened(folder.path());
    CHECK_FAILS(RowReader::of(checkpoint, {"w"}), ErrorCode::unsupported,
                "tensor \"w\": is divided along another dimension than the first");
  }
}

TEST_CASE_FIXTURE(Tables, "What is no table, and what is no row of it, is refused by its name") {
  const Checkpoint checkpoint = opened(path);
  const auto refused = [&](std::initializer_list<std::string_view> tables) {
    return RowReader::of(checkpoint, tables);
  };
  CHECK_FAILS(refused({}), ErrorCode::invalid_argument, "no table is named");
  CHECK_FAILS(refused({"weigth"}), ErrorCode::not_found, "weigth");
  CHECK_FAILS(refused({"scalar"}), ErrorCode::invalid_argument,
              "tensor \"scalar\": is a scalar, which has no rows");
  CHECK_FAILS(refused({"narrow"}), ErrorCode::unsupported,
              "tensor \"narrow\": its rows have no bytes");
  const RowReader none = RowReader::of(checkpoint, {"none"}).value();
  CHECK(gathered(none, {}).empty());
  CHECK_FAILS(none.gather(std::vector<std::int64_t>{0}, {std::span<std::byte>()}),
              ErrorCode::invalid_argument, "id 0, number 0, is no row of \"none\", which has 0");
  CHECK_FAILS(refused({"weight", "cube"}), ErrorCode::invalid_argument,
              "\"weight\" has 65536 rows, \"cube\" has 2");
  const Checkpoint writable = opened(path, {.sharing = Sharing::private_, .writable = true});
  CHECK_FAILS(RowReader::of(writable, {"weight"}), ErrorCode::invalid_argument,
              "the checkpoint is writable");
  const RowReader rows = RowReader::of(checkpoint, {"weight"}).value();
  std::string text(2 * row_bytes, '?');
  const auto out = std::as_writable_bytes(std::span(text));
  for (const std::int64_t wrong : {std::int64_t{-1}, row_count, std::int64_t{1} << 62})
    CHECK_FAILS(
        rows.gather(std::vector<std::int64_t>{3, wrong}, {out}), ErrorCode::invalid_argument,
        "id " + std::to_string(wrong) + ", number 1, is no row of \"weight\", which has 65536");
  CHECK_FAILS(rows.gather(std::vector<std::int64_t>{3}, {out}), ErrorCode::invalid_argument,
              "the buffer of \"weight\" has 512 bytes, not 1 rows of 256");
  CHECK_FAILS(rows.gather(std::vector<std::int64_t>{3}, {out, out}), ErrorCode::invalid_argument,
              "2 buffers for 1 tables");
  CHECK(text == std::string(2 * row_bytes, '?'));
}

TEST_CASE_FIXTURE(Tables, "A file that was truncated or written to is an error") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"weight"}).value();
  std::string text(row_bytes, '?');
  const auto gather = [&] {
    return rows.gather(std::vector<std::int64_t>{row_count - 1},
                       {std::as_writable_bytes(std::span(text))});
  };
  REQUIRE_OK(gather());
  SUBCASE("truncated") { std::filesystem::resize_file(path, 4096); }
  SUBCASE("written to") { std::fstream(path, std::ios::in | std::ios::out) << "x"; }
  const Result<void> changed = gather();
  CHECK_FAILS(changed, ErrorCode::io, "");
  CHECK(changed.error().file == path.native());
}

TEST_CASE_FIXTURE(Tables,
                  "Of a table that is not cached the pages of the rows are read, and no others") {
  if (mmap::lives_in_memory(os::File::open(path, false).value())) {
    MESSAGE("SKIPPED: the temporary folder lives in memory, where all is cached");
    return;
  }
  std::uint64_t budget = 0;
  SUBCASE("if none may be mapped") { budget = 0; }
  SUBCASE("if some may be mapped") { budget = std::uint64_t{1} << 20; }
  SUBCASE("if all may be mapped") { budget = std::uint64_t{64} << 20; }
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"weight"}, {.budget_bytes = budget}).value();
  const os::File file = os::File::open(path, false).value();
  REQUIRE(::fsync(file.descriptor()) == 0);
  if (const auto left = mmap::evict(file); !left || *left != 0) {
    MESSAGE("SKIPPED: the system keeps the file in the page cache");
    return;
  }
  // The beginning of the file, and pages one after the other, are where the system reads ahead.
  const std::vector<std::int64_t> ids{0, 17, 33, 100, 30000, 30016, 30032, 30048, 60000};
  CHECK(gathered(rows, ids) == texts_of(ids));
  // A row of 256 bytes lies in one page or in two.
  const std::uint64_t cached = mmap::cached_bytes_of(file).value();
  CHECK(cached >= 8 * 4096);
  CHECK(cached <= 18 * os::page_bytes());
}

TEST_CASE_FIXTURE(Tables, "The process keeps no more mapped pages than the budget") {
  const Checkpoint checkpoint = opened(path);
  const std::vector<std::int64_t> ids = scattered(20000);
  for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{2} << 20}) {
    CAPTURE(budget);
    const RowReader rows = RowReader::of(checkpoint, {"weight"}, {.budget_bytes = budget}).value();
    static_cast<void>(gathered(rows, {1}));
    const std::uint64_t before = os::resident_file_bytes();
    CHECK(gathered(rows, ids) == texts_of(ids));
    const std::uint64_t after = os::resident_file_bytes();
    // A step may map a large page more than the ones before it; other files have a few pages, too.
    CHECK(after <= before + budget + (std::uint64_t{3} << 20));
  }
}

TEST_CASE_FIXTURE(Tables,
                  "Threads that read at once, and give back what others read, get their rows") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows =
      RowReader::of(checkpoint, {"weight"}, {.budget_bytes = std::uint64_t{1} << 20}).value();
  const std::vector<std::int64_t> ids = scattered(3000);
  const std::string expected = texts_of(ids);
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      std::string text(ids.size() * row_bytes, '?');
      const Result<void> ok = rows.gather(ids, {std::as_writable_bytes(std::span(text))});
      right += ok && text == expected;
    });
  threads.clear();
  CHECK(right == 4);
}
