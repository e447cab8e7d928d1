#include <doctest/doctest.h>

#include <algorithm>
#include <memory_resource>
#include <numeric>
#include <random>
#include <string>

#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/texts.hpp"

namespace weightmap::zip {
namespace {

using namespace test;

constexpr std::uint64_t limit = std::uint64_t{1} << 30;
constexpr std::size_t data0 = 4;  // index of data/0 in torch_archive()

// Opens an archive and locates its storages as an open does.
struct Located {
  explicit Located(const Bytes& archive)
      : file(archive),
        source(file),
        cache(source, *std::pmr::new_delete_resource()),
        directory(Directory::read(cache, limit).value()) {}

  // One request per key, of the size that the directory says.
  Located& request(const std::vector<std::string>& wanted) {
    keys = wanted;
    for (const std::string& key : keys) {
      const Record* record = directory.find("data/" + key);
      requests.push_back(
          {key, record == nullptr ? 0 : record->size, 1, DType::uint8, bytes::decimal(key)});
    }
    return *this;
  }
  Located& request_first(std::size_t count) {
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < count; ++i) wanted.push_back(std::to_string(i));
    return request(wanted);
  }
  Result<std::pmr::vector<StorageExtent>> locate() {
    return locate_storages(directory, requests, options, cache, source, stats,
                           *std::pmr::new_delete_resource());
  }
  std::string content(const StorageExtent& extent) const {
    return text_of(std::span(file).subspan(extent.payload_offset, extent.nbytes));
  }

  Bytes file;
  bytes::MemorySource source;
  bytes::ReadCache cache;
  Directory directory;
  std::vector<std::string> keys;
  std::vector<StorageRequest> requests;
  LocateOptions options;
  OpenStats stats;
};

std::vector<std::string> some_storages(std::size_t count) {
  std::mt19937 random(7);  // NOLINT: the same sizes each time
  std::vector<std::string> storages;
  for (std::size_t i = 0; i < count; ++i)
    storages.push_back(std::to_string(i) + std::string(random() % 150, '.'));
  return storages;
}

// --- genuine files -----------------------------------------------------------------------------

TEST_CASE("calculates all storages of a genuine file from one local header") {
  const auto storages = some_storages(120);
  Located located(torch_archive(storages).finish());
  const std::uint64_t reads = located.cache.reads();
  const auto extents = located.request_first(120).locate().value();
  for (std::size_t i = 0; i < storages.size(); ++i) {
    REQUIRE(located.content(extents[i]) == storages[i]);
    REQUIRE(extents[i].record == data0 + i);
    REQUIRE(extents[i].crc32 == crc32(to_bytes(storages[i])));
  }
  CHECK(located.stats.strategy == OffsetStrategy::calculated);
  CHECK(located.stats.storages_calculated == 120);
  CHECK(located.stats.storages_by_directory == 0);
  CHECK(located.stats.storages_by_header == 0);
  CHECK(located.stats.local_headers_read == 1);
  CHECK(located.stats.local_headers_verified == 0);
  CHECK(located.stats.verify_reads == 0);
  CHECK(located.cache.reads() == reads);  // the file is smaller than the tail
}

TEST_CASE("reads nothing but one local header of a large file") {
  const std::string large(100000, 'w');
  Located located(torch_archive({large, large, large}).finish());
  CHECK(located.cache.reads() == 1);
  REQUIRE_OK(located.request_first(3).locate());
  CHECK(located.cache.reads() == 2);
  CHECK(located.cache.bytes_read() == 65536 + 30 + std::string_view("archive/data/0").size());
}

TEST_CASE("calculates empty storages, and across 9, 10 and 99, 100, where names grow") {
  Located located(torch_archive({"", "a", "", "", "b"}).finish());
  const auto extents = located.request_first(5).locate().value();
  CHECK(located.content(extents[4]) == "b");
  CHECK(extents[2].nbytes == 0);
  CHECK(located.stats.storages_calculated == 5);
  const std::vector<std::string> storages(101, std::string(14, 'w'));
  Located many(torch_archive(storages).finish());
  const auto of_many = many.request_first(101).locate().value();
  CHECK(many.stats.storages_calculated == 101);
  CHECK(many.content(of_many[100]) == storages[100]);
}

TEST_CASE("calculates with every alignment that a writer may choose") {
  for (std::uint64_t alignment : {1u, 7u, 63u, 64u, 100u, 4096u, 32768u}) {
    CAPTURE(alignment);
    Located located(torch_archive({"one", "two", "three"}, alignment).finish());
    located.options.alignment = alignment;
    const auto extents = located.request_first(3).locate().value();
    CHECK(located.content(extents[2]) == "three");
    CHECK(extents[1].payload_offset % alignment == 0);
    CHECK(located.stats.storages_calculated == 3);
  }
}

TEST_CASE("calculates a file whose storages are in bytewise order, as before torch 2.7") {
  const auto storages = some_storages(25);
  std::vector<std::size_t> order(storages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [](std::size_t a, std::size_t b) { return std::to_string(a) < std::to_string(b); });
  ArchiveBuilder builder;
  builder.add("archive/data.pkl", "pickle");
  for (std::size_t i : order) builder.add("archive/data/" + std::to_string(i), storages[i]);
  builder.add("archive/version", "3\n");
  Located located(builder.finish());
  const auto extents = located.request_first(25).locate().value();
  for (std::size_t i = 0; i < storages.size(); ++i)
    REQUIRE(located.content(extents[i]) == storages[i]);
  CHECK(located.stats.storages_calculated == 25);
  CHECK(located.stats.local_headers_read == 1);
}

TEST_CASE("answers in the order of the requests, whatever it is, and to none") {
  Located located(torch_archive({"zero", "one", "two", "three"}).finish());
  CHECK(located.locate().value().empty());
  CHECK(located.stats.strategy == OffsetStrategy::none);
  CHECK(located.stats.local_headers_read == 0);
  const auto extents = located.request({"2", "0", "3"}).locate().value();
  CHECK(located.content(extents[0]) == "two");
  CHECK(located.content(extents[1]) == "zero");
  CHECK(located.content(extents[2]) == "three");
}

TEST_CASE("calculates when no record lies behind the last storage") {
  ArchiveBuilder builder;
  builder.add("a/data.pkl", "pickle").add("a/data/0", "one").add("a/data/1", "two");
  Located located(builder.finish());
  REQUIRE_OK(located.request_first(2).locate());
  CHECK(located.stats.storages_calculated == 2);
}

// A file beyond 4 GiB whose weights are zeros that take no memory.
class SparseSource final : public bytes::ByteSource {
 public:
  std::uint64_t size() const noexcept override { return size_; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    std::fill(out.begin(), out.end(), std::byte{0});
    for (const auto& [begin, part] : parts_)
      for (std::size_t i = 0; i < part.size(); ++i)
        if (begin + i >= offset && begin + i - offset < out.size())
          out[begin + i - offset] = part[i];
    return {};
  }
  void append(const Bytes& part) {
    parts_.emplace_back(size_, part);
    size_ += part.size();
  }
  void append_zeros(std::uint64_t count) { size_ += count; }

 private:
  std::vector<std::pair<std::uint64_t, Bytes>> parts_;
  std::uint64_t size_ = 0;
};

TEST_CASE("calculates beyond 4 GiB, with zip64 fields and long descriptors") {
  constexpr std::uint64_t four = 0xFFFFFFFF;
  const std::vector<std::uint64_t> sizes{100, four - 1, 50, four, four + 1, 8, 0, 9};
  SparseSource source;
  std::vector<EmittedRecord> records;
  std::vector<std::string> names, keys;
  std::vector<std::uint64_t> payloads;
  for (std::size_t i = 0; i < sizes.size(); ++i) keys.push_back(std::to_string(i));
  for (const std::string& key : keys) names.push_back("big/data/" + key);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    records.push_back({names[i], source.size(), sizes[i], sizes[i], 0});
    Bytes header, footer;
    bytes::ByteSink header_sink(header), footer_sink(footer);
    emit_local_header(header_sink, Layout{}, records[i]);
    emit_descriptor(footer_sink, records[i]);
    source.append(header);
    payloads.push_back(source.size());
    source.append_zeros(sizes[i]);
    source.append(footer);
  }
  Bytes directory_bytes;
  bytes::ByteSink sink(directory_bytes);
  for (const EmittedRecord& record : records) emit_central_entry(sink, record);
  emit_end(sink, source.size(), directory_bytes.size(), records.size());
  source.append(directory_bytes);

  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  const auto directory = Directory::read(cache, limit).value();
  std::vector<StorageRequest> requests;
  for (std::size_t i = 0; i < sizes.size(); ++i) requests.push_back({keys[i], sizes[i], 1});
  OpenStats stats;
  LocateOptions options;
  options.verify_headers = true;
  const auto extents = locate_storages(directory, requests, options, cache, source, stats,
                                       *std::pmr::new_delete_resource())
                           .value();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(extents[i].payload_offset == payloads[i]);
    CHECK(extents[i].nbytes == sizes[i]);
  }
  CHECK(stats.storages_calculated == sizes.size());
  CHECK(stats.local_headers_read == 1);
  CHECK(stats.local_headers_verified == sizes.size());
}

// --- files that the chain does not explain -----------------------------------------------------

TEST_CASE("places a storage behind a foreign record by the directory and goes on calculating") {
  ArchiveBuilder builder;
  builder.add("a/data/0", "one").add("a/extra.txt", "foreign").add("a/data/1", "two");
  builder.add("a/data/2", "three").add("a/version", "3\n");
  Located located(builder.finish());
  const auto extents = located.request_first(3).locate().value();
  CHECK(located.content(extents[1]) == "two");
  CHECK(located.content(extents[2]) == "three");
  CHECK(located.stats.strategy == OffsetStrategy::directory);
  CHECK(located.stats.storages_calculated == 2);
  CHECK(located.stats.storages_by_directory == 1);
  CHECK(located.stats.local_headers_read == 1);
}

TEST_CASE("reads the local headers of an archive that another tool wrote") {
  ArchiveBuilder builder;
  builder.add_plain("a/data.pkl", "pickle").add_plain("a/.format_version", "1");
  builder.add_plain("a/data/0", "one").add_plain("a/data/1", "two").add_plain("a/version", "3\n");
  Located located(builder.finish());
  const auto extents = located.request_first(2).locate().value();
  CHECK(located.content(extents[0]) == "one");
  CHECK(located.content(extents[1]) == "two");
  CHECK(located.stats.strategy == OffsetStrategy::headers);
  CHECK(located.stats.storages_by_header == 2);
  CHECK(located.stats.local_headers_read == 2);
}

TEST_CASE("reads one header where a hole breaks the chain, and only there") {
  ArchiveBuilder builder;
  builder.add("a/data/0", "one").add("a/data/1", "two");
  builder.bytes().insert(builder.bytes().end(), 40, std::byte{'?'});
  builder.add("a/data/2", "three").add("a/data/3", "four").add("a/version", "3\n");
  Located located(builder.finish());
  const auto extents = located.request_first(4).locate().value();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(located.content(extents[i]) ==
          std::vector<std::string>{"one", "two", "three", "four"}[i]);
  CHECK(located.stats.storages_calculated == 2);
  CHECK(located.stats.storages_by_header == 1);
  CHECK(located.stats.storages_by_directory == 1);
  CHECK(located.stats.local_headers_read == 2);
}

TEST_CASE("an alignment of 0 reads every header") {
  Located located(torch_archive({"one", "two"}).finish());
  located.options.alignment = 0;
  const auto extents = located.request_first(2).locate().value();
  CHECK(located.content(extents[1]) == "two");
  CHECK(located.stats.storages_by_header == 2);
}

// --- refusals ----------------------------------------------------------------------------------

TEST_CASE("accepts a remainder smaller than an element, and refuses one that is not") {
  Located located(torch_archive({"0123456789"}).finish());
  located.requests = {{"0", 8, 4}};
  const auto extents = located.locate().value();
  CHECK(extents[0].nbytes == 10);
  located.requests = {{"0", 8, 2}};
  CHECK_FAILS(located.locate(), ErrorCode::corrupt, "has 10 bytes, the pickle says 8");
}

TEST_CASE("gives a compressed storage the bytes that it inflates to") {
  ArchiveBuilder builder;
  const Bytes deflated = to_bytes(raw("\xCB\x48\xCD\xC9\xC9\x57\xC8\x40\x27\x01"));
  builder.add_stored_as("a/data/0", deflated, 23, Method::deflated, 0);
  Located located(builder.finish());
  located.requests = {{"0", 23, 1}};
  const auto extents = located.locate();
  REQUIRE_OK(extents);
  CHECK((*extents)[0].nbytes == 23);
  located.requests = {{"0", 10, 1}};
  CHECK_FAILS(located.locate(), ErrorCode::corrupt, "has 23 bytes, the pickle says 10");
}

TEST_CASE("refuses a first storage whose local header contradicts the record behind it") {
  ArchiveBuilder builder = torch_archive({"one", "two"});
  builder.finish();
  const auto& place = builder.place(data0);
  patch(builder.bytes(), place.header + 28, place.payload - place.header - 30 - 14 + 5, 2);
  Located located(builder.bytes());
  CHECK_FAILS(located.request_first(2).locate(), ErrorCode::corrupt,
              "\"archive/data/0\" begins at byte " + std::to_string(place.payload + 5));
}

TEST_CASE("verification reads every local header once") {
  Located located(torch_archive({"one", "two", "three"}).finish());
  located.options.verify_headers = true;
  REQUIRE_OK(located.request_first(3).locate());
  CHECK(located.stats.local_headers_read == 1);
  CHECK(located.stats.local_headers_verified == 3);
  CHECK(located.stats.verify_reads == 3);
  CHECK(located.stats.verify_bytes_read == 3 * (30 + 14));
}

// Moves the start of data/1 within its record, so that only its local header tells.
TEST_CASE("verification refuses a local header that places the payload elsewhere") {
  ArchiveBuilder builder = torch_archive({"one", "two"});
  builder.finish();
  const auto& place = builder.place(data0 + 1);
  patch(builder.bytes(), place.header + 28, place.payload - place.header - 30 - 14 + 5, 2);
  Located located(builder.bytes());
  REQUIRE_OK(located.request_first(2).locate());
  located.options.verify_headers = true;
  CHECK_FAILS(located.locate(), ErrorCode::corrupt,
              "\"archive/data/1\" was calculated to begin at " + std::to_string(place.payload) +
                  ", its local header says " + std::to_string(place.payload + 5));
}

TEST_CASE("refuses extra fields that push the payload out of its record") {
  ArchiveBuilder builder;
  builder.add_plain("a/first", "content").add("a/second", "x").finish();
  for (const auto& [bytes, words] : {std::pair{1u, "has 1 byte of extra fields"},
                                     {0xFFFFu, "has 65535 bytes of extra fields"}}) {
    patch(builder.bytes(), builder.place(0).header + 28, bytes, 2);
    const Located located(builder.bytes());
    const Record& record = located.directory.records()[0];
    CHECK_FAILS(read_local_header(located.source, record, located.directory.limit_of(record)),
                ErrorCode::corrupt, words);
  }
}

// --- small records -----------------------------------------------------------------------------

struct RecordFixture {
  RecordFixture() {
    builder.add("a/data.pkl", "the pickle").add_plain("a/plain", "plain");
    builder.add_stored_as("a/text", deflated, 23, Method::deflated, crc32(to_bytes(inflated)));
    builder.add("a/empty", "").add("a/no_crc", "unchecked");
    builder.finish();
    patch(builder.bytes(), builder.place(4).entry + 16, 0, 4);
    open();
  }
  void open() {
    source.emplace(builder.bytes());
    cache.emplace(*source, *std::pmr::new_delete_resource());
    directory = Directory::read(*cache, limit).value();
  }
  Result<RecordBytes> read(std::string_view name, std::uint64_t max_bytes = 100) {
    return read_record(directory, *directory.find(name), *cache, max_bytes);
  }

  const Bytes deflated = to_bytes(raw("\xCB\x48\xCD\xC9\xC9\x57\xC8\x40\x27\x01"));
  const std::string_view inflated = "hello hello hello hello";
  ArchiveBuilder builder;
  std::optional<bytes::MemorySource> source;
  std::optional<bytes::ReadCache> cache;
  Directory directory;
};

TEST_CASE_FIXTURE(RecordFixture, "reads records that lie in a window without copy or read") {
  const auto content = read("data.pkl").value();
  CHECK(text_of(content.bytes) == "the pickle");
  CHECK(content.file_offset == builder.place(0).payload);
  CHECK(content.inflated.size() == 0);
  CHECK(cache->reads() == 1);
  const auto window = cache->bytes(0, builder.bytes().size()).value();
  CHECK(content.bytes.data() == window.data() + content.file_offset);
}

TEST_CASE_FIXTURE(RecordFixture, "reads plain, empty, inflated and unchecked records") {
  CHECK(text_of(read("plain").value().bytes) == "plain");
  CHECK(text_of(read("empty").value().bytes).empty());
  CHECK(text_of(read("text").value().bytes) == inflated);
  CHECK(text_of(read("no_crc").value().bytes) == "unchecked");
}

TEST_CASE_FIXTURE(RecordFixture, "refuses a record that its local header places elsewhere") {
  // The directory and the padding rule agree; a reader that believes the local header goes on
  // later.
  patch(builder.bytes(), builder.place(0).header + 28, 24 + 6, 2);
  open();
  CHECK_FAILS(read("data.pkl"), ErrorCode::corrupt,
              "record \"a/data.pkl\" begins at byte 70 by its local header, but at 64 by the "
              "record behind it");
}

TEST_CASE("reads a record far from the directory with its local header in one read") {
  ArchiveBuilder builder;
  builder.add("a/data.pkl", "the pickle").add("a/data/0", std::string(100000, 'w'));
  const bytes::MemorySource source(builder.finish());
  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  const Directory directory = Directory::read(cache, limit).value();
  const std::uint64_t before = cache.reads();
  const auto content = read_record(directory, *directory.find("data.pkl"), cache, 100).value();
  CHECK(text_of(content.bytes) == "the pickle");
  CHECK(cache.reads() == before + 1);
}

TEST_CASE_FIXTURE(RecordFixture, "gives up the memory that the content lies in") {
  auto stored = read("data.pkl").value();
  const bytes::Buffer window = std::move(stored).release(*cache);
  CHECK(window.size() == builder.bytes().size());
  auto text = read("text").value();
  const std::byte* const begin = text.bytes.data();
  CHECK(std::move(text).release(*cache).data() == begin);
}

TEST_CASE_FIXTURE(RecordFixture, "refuses a record above the limit, stored or inflated") {
  CHECK_FAILS(read("data.pkl", 9), ErrorCode::limit_exceeded, "10 bytes, the limit is 9");
  CHECK_FAILS(read("text", 22), ErrorCode::limit_exceeded, "23 bytes, the limit is 22");
}

}  // namespace
}  // namespace weightmap::zip
