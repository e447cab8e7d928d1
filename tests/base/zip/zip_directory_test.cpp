#include <doctest/doctest.h>

#include <algorithm>
#include <memory_resource>
#include <string>

#include "runtime/base/zip/directory.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"

namespace weightmap::zip {
namespace {

using namespace test;

constexpr std::uint64_t limit = std::uint64_t{1} << 30;

// A directory together with what it points into.
struct Opened {
  explicit Opened(const Bytes& file, std::uint64_t max_directory_bytes = limit)
      : source(file),
        cache(source, *std::pmr::new_delete_resource()),
        directory(Directory::read(cache, max_directory_bytes)) {}

  bytes::MemorySource source;
  bytes::ReadCache cache;
  Result<Directory> directory;
};

#define CHECK_REFUSES(file, code, text) CHECK_FAILS(Opened(file).directory, code, text)

std::vector<std::string> short_names(const Directory& directory) {
  std::vector<std::string> names;
  for (const Record& record : directory.records()) names.emplace_back(directory.short_name(record));
  return names;
}

// Two storages and what torch puts around them, finished, with its end records ready for damage.
struct TorchFile {
  ArchiveBuilder builder = torch_archive({"first storage", "second"});
  Bytes& file = builder.finish();
  std::size_t entry(std::size_t index) const { return builder.place(index).entry; }
};
constexpr std::size_t data0 = 4;  // index of the record data/0

TEST_CASE_FIXTURE(TorchFile, "reads the directory that torch writes") {
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  const Directory& directory = *opened.directory;
  CHECK(directory.top_folder() == "archive/");
  CHECK(short_names(directory) ==
        std::vector<std::string>{"data.pkl", ".format_version", ".storage_alignment", "byteorder",
                                 "data/0", "data/1", "version", ".data/serialization_id"});
  CHECK(directory.offset() == builder.directory_offset());
  CHECK(directory.archive_start() == 0);
  const Record& record = directory.records()[data0];
  CHECK(record.header_offset == builder.place(data0).header);
  CHECK(record.size == 13);
  CHECK(record.stored_size == 13);
  CHECK(record.crc32 == builder.place(data0).crc32);
  CHECK(record.method == Method::stored);
  CHECK(record.has_descriptor);
  CHECK(opened.cache.reads() == 1);
  CHECK(opened.cache.bytes_read() == file.size());
}

TEST_CASE_FIXTURE(TorchFile, "finds records by name without the top folder, exact case") {
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  const Directory& directory = *opened.directory;
  for (const char* name : {"data.pkl", "byteorder", "data/0", "data/1", "version"}) {
    const Record* record = directory.find(name);
    REQUIRE(record != nullptr);
    CHECK(directory.short_name(*record) == name);
  }
  for (const char* name : {"DATA.PKL", "data/2", "data/", "", "archive/data.pkl", "data/00"})
    CHECK(directory.find(name) == nullptr);
  CHECK(directory.find_full("archive/data/1") == directory.find("data/1"));
}

TEST_CASE_FIXTURE(TorchFile,
                  "a record's space ends at the next header, the last one's at the directory") {
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  const auto records = opened.directory->records();
  CHECK(opened.directory->limit_of(records[0]) == builder.place(1).header);
  CHECK(opened.directory->limit_of(records.back()) == builder.directory_offset());
}

TEST_CASE("reads a directory that is longer than the tail in one more read") {
  ArchiveBuilder builder = torch_archive(std::vector<std::string>(2000, "weights"));
  const Bytes& file = builder.finish();
  REQUIRE(file.size() - builder.directory_offset() > 65536);
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records().size() == 2006);
  CHECK(opened.cache.reads() == 2);
  CHECK(opened.cache.bytes_read() == file.size() - builder.directory_offset());
  for (std::size_t i = 0; i < 2000; ++i)
    REQUIRE(opened.directory->find("data/" + std::to_string(i)) ==
            &opened.directory->records()[data0 + i]);
}

TEST_CASE("finds every record in files with names in bytewise order, as before torch 2.7") {
  std::vector<std::string> keys;
  for (int i = 0; i < 300; ++i) keys.push_back(std::to_string(i));
  std::sort(keys.begin(), keys.end());
  ArchiveBuilder builder;
  builder.add("a/data.pkl", "x");
  for (const std::string& key : keys) builder.add("a/data/" + key, "w");
  builder.add("a/version", "3\n");
  const Opened opened(builder.finish());
  REQUIRE_OK(opened.directory);
  for (std::size_t i = 0; i < keys.size(); ++i)
    REQUIRE(opened.directory->find("data/" + keys[i]) == &opened.directory->records()[i + 1]);
  CHECK(opened.directory->find("data/300") == nullptr);
}

TEST_CASE("finds every record in files without any order of names") {
  ArchiveBuilder builder;
  for (int i = 0; i < 300; ++i) builder.add("a/" + std::to_string(i * 7919 % 1009), "w");
  const Opened opened(builder.finish());
  REQUIRE_OK(opened.directory);
  for (std::size_t i = 0; i < 300; ++i)
    REQUIRE(opened.directory->find(std::to_string(i * 7919 % 1009)) ==
            &opened.directory->records()[i]);
  CHECK(opened.directory->find("1009") == nullptr);
}

TEST_CASE("accepts bytes before the archive and counts them into offsets") {
  ArchiveBuilder builder = torch_archive({"weights"});
  for (Bytes file : {Bytes(builder.finish()), torch_archive({"weights"}).finish_classic()}) {
    const Bytes program = to_bytes("#!/bin/sh\nexit\n");
    file.insert(file.begin(), program.begin(), program.end());
    const Opened opened(file);
    REQUIRE_OK(opened.directory);
    CHECK(opened.directory->archive_start() == program.size());
    CHECK(opened.directory->records()[data0].header_offset ==
          builder.place(data0).header + program.size());
  }
}

TEST_CASE("accepts folders, empty records, and records of other writers") {
  ArchiveBuilder builder;
  builder.add("a/", "").add_plain("a/x", "plain").add("a/empty", "").add("elsewhere", "y");
  const Opened opened(builder.finish());
  REQUIRE_OK(opened.directory);
  CHECK_FALSE(opened.directory->records()[1].has_descriptor);
  CHECK(short_names(*opened.directory) == std::vector<std::string>{"", "x", "empty", "elsewhere"});
}

TEST_CASE("accepts values in the zip64 field of an entry") {
  // The fields refer to a zip64 field that holds small numbers: allowed, and no 4 GiB file needed.
  Bytes file;
  bytes::ByteSink sink(file);
  emit_local_header(sink, Layout{}, {"a/x", 0, 5, 5, 1});
  const std::size_t payload = file.size();
  sink.text("12345");
  emit_descriptor(sink, {"a/x", 0, 5, 5, 1});
  const std::size_t entry = file.size();
  emit_central_entry(sink, {"a/x", 0, 5, 5, 1});
  patch(file, entry + 20, 0xFFFFFFFF, 4);
  patch(file, entry + 24, 0xFFFFFFFF, 4);
  patch(file, entry + 42, 0xFFFFFFFF, 4);
  patch(file, entry + 30, 28, 2);
  sink.u16(1);
  sink.u16(24);
  for (std::uint64_t value : {5u, 5u, 0u}) sink.u64(value);
  emit_end(sink, entry, file.size() - entry, 1);
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  const Record& record = opened.directory->records()[0];
  CHECK(record.size == 5);
  CHECK(record.stored_size == 5);
  CHECK(record.header_offset == 0);
  CHECK(payload == 64);
}

// --- no archive ------------------------------------------------------------------------------

TEST_CASE("says that a file without an end record is no archive") {
  CHECK_REFUSES(Bytes{}, ErrorCode::not_a_checkpoint, "no end record");
  CHECK_REFUSES(to_bytes("short"), ErrorCode::not_a_checkpoint, "no end record");
  CHECK_REFUSES(Bytes(200000), ErrorCode::not_a_checkpoint, "no end record");
}

TEST_CASE("no flipped byte of the directory or the end records makes trouble") {
  TorchFile torch;
  for (std::size_t at = torch.builder.directory_offset(); at < torch.file.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      Bytes file = torch.file;
      file[at] ^= static_cast<std::byte>(1 << bit);
      const Opened opened(file);
      if (!opened.directory) continue;
      for (const Record& record : opened.directory->records())
        REQUIRE(record.header_offset + 30 + record.name_length + record.stored_size <=
                opened.directory->limit_of(record));
    }
}

// --- refusals of which tests/hostile/zip_cases.py, which has most, has no file ------------------

TEST_CASE_FIXTURE(TorchFile, "refuses more than a comment's length behind the end record") {
  file.insert(file.end(), 70000, std::byte{0});
  CHECK_REFUSES(file, ErrorCode::not_a_checkpoint, "no end record in the last 65557 bytes");
}

TEST_CASE("refuses a locator with no room for a zip64 end record") {
  Bytes file;
  bytes::ByteSink sink(file);
  emit_end(sink, 0, 0, 1);
  file.erase(file.begin(), file.begin() + 40);
  CHECK_REFUSES(file, ErrorCode::corrupt, "no room for a zip64 end record");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory longer than the limit") {
  const std::uint64_t size = builder.end64_offset() - builder.directory_offset();
  CHECK(Opened(file, size).directory.has_value());
  CHECK_FAILS(Opened(file, size - 1).directory, ErrorCode::limit_exceeded,
              "directory has " + std::to_string(size));
}

TEST_CASE("refuses names that come again, or differ in case alone") {
  const auto archive_of = [](const std::vector<std::string>& front, int count,
                             const std::vector<std::string>& back) {
    ArchiveBuilder builder;
    for (const std::string& name : front) builder.add(name, "one");
    for (int i = 0; i < count; ++i) builder.add("a/data/" + std::to_string(i), "w");
    for (const std::string& name : back) builder.add(name, "two");
    return Bytes(builder.finish());
  };
  using enum ErrorCode;
  // Inside and outside the sorted run, twice outside of it, and in a file without order.
  CHECK_REFUSES(archive_of({}, 100, {"a/data/57"}), corrupt, "two records are named \"a/data/57\"");
  CHECK_REFUSES(archive_of({"a/x", "a/a"}, 100, {"a/x"}), corrupt, "two records are named \"a/x\"");
  std::vector<std::string> unordered;
  for (int i = 0; i < 300; ++i) unordered.push_back("a/" + std::to_string(i * 7919 % 299));
  CHECK_REFUSES(archive_of(unordered, 0, {}), corrupt, "two records are named \"a/0\"");
  // Neither of them in lower case, below the top folder and outside of it.
  CHECK_REFUSES(archive_of({"a/x/Ab", "a/x/aB"}, 1, {}), corrupt,
                "\"a/x/Ab\" and \"a/x/aB\" are named alike but for case");
  CHECK_REFUSES(archive_of({}, 1, {"Other/x", "oTher/x"}), corrupt, "are named alike but for case");
}

// An archive of one record whose entry has these extra fields and refers to them for its sizes.
Bytes with_extra(std::string_view extra) {
  ArchiveBuilder builder;
  builder.add("a/x", "12345").finish();
  Bytes& file = builder.bytes();
  const std::size_t entry = builder.place(0).entry;
  file.erase(file.end() - 98, file.end());  // the end records
  patch(file, entry + 20, 0xFFFFFFFF, 4);
  patch(file, entry + 24, 0xFFFFFFFF, 4);
  patch(file, entry + 30, extra.size(), 2);
  bytes::ByteSink sink(file);
  sink.text(extra);
  emit_end(sink, entry, file.size() - entry, 1);
  return file;
}

TEST_CASE("accepts the zip64 field behind other extra fields") {
  const Opened opened(
      with_extra(raw("XY\x02\0..\x01\0\x10\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0")));
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records()[0].size == 5);
}

TEST_CASE("reads the size before the stored size from a zip64 field") {
  Bytes file = with_extra(raw("\x01\0\x10\0\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0"));
  const std::size_t entry = file.size() - 98 - 20 - 3 - 46;
  patch(file, entry + 10, 8, 2);  // deflated, so that the two may differ
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records()[0].size == 9);
  CHECK(opened.directory->records()[0].stored_size == 5);
}

TEST_CASE("refuses an extra field longer than what is left, and a second zip64 field, even empty") {
  CHECK_REFUSES(with_extra(raw("\x01\0\x10\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0XY\x03\0..")),
                ErrorCode::corrupt, "has an extra field of 3 bytes with only 2 left");
  CHECK_REFUSES(with_extra(raw("\x01\0\x10\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0")),
                ErrorCode::corrupt, "has two zip64 fields");
}

TEST_CASE("refuses a record on the next disk, and an entry that ends a byte behind the directory") {
  ArchiveBuilder builder;
  const Bytes whole = builder.add("a/x", "12345").finish();
  const std::size_t entry = builder.place(0).entry;
  Bytes file = whole;
  patch(file, entry + 34, 1, 2);
  CHECK_REFUSES(file, ErrorCode::unsupported, "record \"a/x\" is on disk 1");
  file = whole;
  patch(file, entry + 32, 1, 2);  // the length of its comment
  CHECK_REFUSES(file, ErrorCode::corrupt, "an entry of 50 bytes runs out of the directory");
}

TEST_CASE("refuses more records than the directory has room for, before it reads it") {
  ArchiveBuilder builder;
  builder.add("a/x", "12345").finish();
  Bytes& file = builder.bytes();
  const std::size_t entry = builder.place(0).entry;
  file.erase(file.end() - 98, file.end());  // the end records
  bytes::ByteSink sink(file);
  emit_end(sink, entry, file.size() - entry, 2);
  CHECK_REFUSES(file, ErrorCode::corrupt, "a directory of 49 bytes holds at most 1");
}

TEST_CASE("refuses a zip64 header offset that wraps behind bytes before the archive") {
  ArchiveBuilder builder;
  builder.add("a/x", "12345").finish();
  Bytes& file = builder.bytes();
  const std::size_t entry = builder.place(0).entry;
  file.erase(file.end() - 98, file.end());  // the end records
  patch(file, entry + 42, 0xFFFFFFFF, 4);
  patch(file, entry + 30, 12, 2);
  bytes::ByteSink sink(file);
  sink.text(raw("\x01\0\x08\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
  emit_end(sink, entry, file.size() - entry, 1);
  CHECK_REFUSES(file, ErrorCode::corrupt, "runs into the directory");
  file.insert(file.begin(), 3, std::byte{'#'});
  CHECK_REFUSES(file, ErrorCode::corrupt, "header offset beyond the file");
}

}  // namespace
}  // namespace weightmap::zip
