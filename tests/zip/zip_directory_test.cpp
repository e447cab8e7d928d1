#include <doctest/doctest.h>

#include <algorithm>
#include <memory_resource>
#include <string>

#include "runtime/zip/directory.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"

namespace weightmap::zip {
namespace {

using test::ArchiveBuilder;
using test::Bytes;
using test::patch;
using test::raw;
using test::to_bytes;
using test::torch_archive;

constexpr std::uint64_t limit = std::uint64_t{1} << 30;
constexpr std::uint64_t most = ~std::uint64_t{0};

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
constexpr std::size_t data1 = 5;

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

TEST_CASE("accepts an archive without zip64 end records") {
  const Opened opened(torch_archive({"weights"}).finish_classic());
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records().size() == 7);
}

TEST_CASE("accepts an archive comment") {
  for (Bytes file : {torch_archive({"w"}).finish(), torch_archive({"w"}).finish_classic()}) {
    const Bytes comment = to_bytes("made with care");
    patch(file, file.size() - 2, comment.size(), 2);
    file.insert(file.end(), comment.begin(), comment.end());
    const Opened opened(file);
    REQUIRE_OK(opened.directory);
    CHECK(opened.directory->records().size() == 7);
  }
}

TEST_CASE("accepts the longest comment, which the tail does not reach over") {
  Bytes file = torch_archive({"w"}).finish();
  patch(file, file.size() - 2, 65535, 2);
  file.insert(file.end(), 65535, std::byte{'c'});
  const Opened opened(file);
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records().size() == 7);
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

TEST_CASE("accepts a directory in another order than the records") {
  TorchFile torch;
  // Exchange the entries of data/0 and data/1, which are equally long.
  const auto first = torch.file.begin() + static_cast<std::ptrdiff_t>(torch.entry(data0));
  const auto second = torch.file.begin() + static_cast<std::ptrdiff_t>(torch.entry(data1));
  std::swap_ranges(first, second, second);
  const Opened opened(torch.file);
  REQUIRE_OK(opened.directory);
  const auto records = opened.directory->records();
  CHECK(opened.directory->short_name(records[data0]) == "data/1");
  CHECK(opened.directory->limit_of(records[data1]) == records[data0].header_offset);
  CHECK(opened.directory->limit_of(records[data0]) == records[data1 + 1].header_offset);
  CHECK(opened.directory->limit_of(records.back()) == opened.directory->offset());
}

TEST_CASE("accepts zip signatures inside the weights") {
  const std::string weights =
      std::string(raw("PK\x05\x06\0\0\0\0\x01\0\x01\0")) + std::string(raw("PK\x06\x06PK\x06\x07"));
  const Opened opened(torch_archive({weights, weights}).finish());
  REQUIRE_OK(opened.directory);
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

TEST_CASE("an archive cut anywhere is refused") {
  const Bytes file = TorchFile().file;
  for (std::size_t length = 0; length < file.size(); ++length) {
    const Opened opened(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)));
    REQUIRE_FALSE(opened.directory.has_value());
  }
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

// --- end records -----------------------------------------------------------------------------

TEST_CASE_FIXTURE(TorchFile, "refuses bytes behind the end record") {
  file.push_back(std::byte{0});
  CHECK_REFUSES(file, ErrorCode::corrupt, "the file goes on for 1 byte");
}

TEST_CASE_FIXTURE(TorchFile, "refuses more than a comment's length behind the end record") {
  file.insert(file.end(), 70000, std::byte{0});
  CHECK_REFUSES(file, ErrorCode::not_a_checkpoint, "no end record in the last 65557 bytes");
}

TEST_CASE_FIXTURE(TorchFile, "refuses two end records, one in the comment of the other") {
  const Bytes end(file.end() - 22, file.end());
  patch(file, file.size() - 2, end.size(), 2);
  file.insert(file.end(), end.begin(), end.end());
  CHECK_REFUSES(file, ErrorCode::corrupt, "two end records");
}

TEST_CASE_FIXTURE(TorchFile, "refuses an end record in the comment even if more follows it") {
  // Readers that take the last signature would show what this one points to.
  Bytes comment(file.end() - 22, file.end());
  comment.insert(comment.end(), 4, std::byte{'!'});
  patch(file, file.size() - 2, comment.size(), 2);
  file.insert(file.end(), comment.begin(), comment.end());
  CHECK_REFUSES(file, ErrorCode::corrupt, "two end records");
}

TEST_CASE_FIXTURE(TorchFile, "refuses counts that disagree within the zip64 end record") {
  patch(file, builder.end64_offset() + 24, 7, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "counts 7 records on this disk and 8 in all");
}

TEST_CASE_FIXTURE(TorchFile, "refuses end records that disagree about the count") {
  patch(file, builder.end_offset() + 8, 7, 2);
  patch(file, builder.end_offset() + 10, 7, 2);
  CHECK_REFUSES(file, ErrorCode::corrupt, "disagree about the record count");
}

TEST_CASE_FIXTURE(TorchFile, "refuses end records that disagree about the directory's size") {
  patch(file, builder.end_offset() + 12, 100, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "disagree about the directory size");
}

TEST_CASE_FIXTURE(TorchFile, "refuses end records that disagree about the directory's place") {
  patch(file, builder.end_offset() + 16, 100, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "disagree about the directory offset");
}

void set_counts(ArchiveBuilder& builder, std::uint64_t count) {
  patch(builder.bytes(), builder.end64_offset() + 24, count, 8);
  patch(builder.bytes(), builder.end64_offset() + 32, count, 8);
  const std::uint64_t small = std::min<std::uint64_t>(count, 0xFFFF);
  patch(builder.bytes(), builder.end_offset() + 8, small, 2);
  patch(builder.bytes(), builder.end_offset() + 10, small, 2);
}

TEST_CASE_FIXTURE(TorchFile, "refuses a count of 2^63 without reserving for it") {
  set_counts(builder, std::uint64_t{1} << 63);
  CHECK_REFUSES(file, ErrorCode::corrupt, "counts 9223372036854775808 records, but a directory");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a count of 2^32 + n, which would be right in 32 bits") {
  set_counts(builder, (std::uint64_t{1} << 32) + 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "counts 4294967304 records, but a directory");
}

TEST_CASE_FIXTURE(TorchFile, "refuses one record more than the directory holds") {
  set_counts(builder, 9);
  CHECK_REFUSES(file, ErrorCode::corrupt, "holds 8 records, but the end record counts 9");
}

TEST_CASE_FIXTURE(TorchFile, "refuses one record fewer than the directory holds") {
  set_counts(builder, 7);
  CHECK_REFUSES(file, ErrorCode::corrupt, "goes on behind the 7 records");
}

TEST_CASE_FIXTURE(TorchFile, "refuses an archive of no records") {
  set_counts(builder, 0);
  CHECK_REFUSES(file, ErrorCode::corrupt, "holds no records");
}

TEST_CASE("refuses an empty archive") {
  CHECK_REFUSES(ArchiveBuilder().finish(), ErrorCode::corrupt, "holds no records");
}

TEST_CASE("refuses a count of 65535 without zip64, which may be any larger number") {
  Bytes file = torch_archive({"w"}).finish_classic();
  patch(file, file.size() - 14, 0xFFFF, 2);
  patch(file, file.size() - 12, 0xFFFF, 2);
  CHECK_REFUSES(file, ErrorCode::corrupt, "refers to a zip64 end record, but there is none");
}

TEST_CASE("refuses a directory offset of 0xFFFFFFFF without zip64") {
  Bytes file = torch_archive({"w"}).finish_classic();
  patch(file, file.size() - 6, 0xFFFFFFFF, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "refers to a zip64 end record, but there is none");
}

void set_directory(ArchiveBuilder& builder, std::uint64_t offset, std::uint64_t size) {
  patch(builder.bytes(), builder.end64_offset() + 40, size, 8);
  patch(builder.bytes(), builder.end64_offset() + 48, offset, 8);
  patch(builder.bytes(), builder.end_offset() + 12, std::min<std::uint64_t>(size, 0xFFFFFFFF), 4);
  patch(builder.bytes(), builder.end_offset() + 16, std::min<std::uint64_t>(offset, 0xFFFFFFFF), 4);
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory size of 0") {
  set_directory(builder, builder.directory_offset(), 0);
  CHECK_REFUSES(file, ErrorCode::corrupt, "a directory of 0 bytes holds at most 0");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory beyond the file") {
  set_directory(builder, file.size(), 500);
  CHECK_REFUSES(file, ErrorCode::corrupt, "does not lie before its end record");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory whose offset and size wrap together") {
  set_directory(builder, most - 99, 500);
  CHECK_REFUSES(file, ErrorCode::corrupt, "does not lie before its end record");
}

TEST_CASE("refuses a directory whose 32-bit offset and size wrap together") {
  Bytes file = torch_archive({"w"}).finish_classic();
  patch(file, file.size() - 6, 0xFFFFFFF0, 4);
  patch(file, file.size() - 10, 0x200, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "does not lie before its end record");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory that does not start with an entry") {
  const std::uint64_t size = builder.end64_offset() - builder.directory_offset();
  set_directory(builder, builder.directory_offset() + 1, size - 1);
  CHECK_REFUSES(file, ErrorCode::corrupt, "no entry where one is expected");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a hole between the directory and its end records") {
  file.insert(file.end() - 98, 16, std::byte{0});
  CHECK_REFUSES(file, ErrorCode::corrupt, "");
}

TEST_CASE("refuses bytes inserted before the directory") {
  ArchiveBuilder builder = torch_archive({"w"});
  for (Bytes file : {Bytes(builder.finish()), torch_archive({"w"}).finish_classic()}) {
    file.insert(file.begin() + static_cast<std::ptrdiff_t>(builder.directory_offset()), 64,
                std::byte{0});
    CHECK_REFUSES(file, ErrorCode::corrupt, "the file begins like an archive too");
  }
}

TEST_CASE("refuses two archives back to back") {
  Bytes file = torch_archive({"one"}).finish();
  const Bytes second = torch_archive({"two"}).finish();
  file.insert(file.end(), second.begin(), second.end());
  CHECK_REFUSES(file, ErrorCode::corrupt, "two archives in one file");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zip64 locator that points beyond the file") {
  patch(file, builder.locator_offset() + 8, file.size() + 1, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "the zip64 locator points to byte");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zip64 locator that points to 2^64 - 1") {
  patch(file, builder.locator_offset() + 8, most, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "points to byte 18446744073709551615");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zip64 locator that points to itself") {
  patch(file, builder.locator_offset() + 8, builder.locator_offset(), 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "the zip64 locator points to byte");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zip64 end record inside the weights") {
  patch(file, builder.locator_offset() + 8, builder.place(data0).payload, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "the zip64 locator points to byte");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a locator without a zip64 end record before it") {
  patch(file, builder.end64_offset(), 0, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "no zip64 end record directly before it");
}

TEST_CASE("refuses a locator with no room for a zip64 end record") {
  Bytes file;
  bytes::ByteSink sink(file);
  emit_end(sink, 0, 0, 1);
  file.erase(file.begin(), file.begin() + 40);
  CHECK_REFUSES(file, ErrorCode::corrupt, "no room for a zip64 end record");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zip64 end record of another length") {
  patch(file, builder.end64_offset() + 4, 45, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "says it is 45 bytes long, expected 44");
}

TEST_CASE_FIXTURE(TorchFile, "refuses archives of several disks") {
  Bytes other = file;
  patch(other, builder.locator_offset() + 16, 2, 4);
  CHECK_REFUSES(other, ErrorCode::unsupported, "several disks");
  other = file;
  patch(other, builder.end64_offset() + 16, 1, 4);
  CHECK_REFUSES(other, ErrorCode::unsupported, "one of several disks");
  Bytes classic = torch_archive({"w"}).finish_classic();
  patch(classic, classic.size() - 18, 1, 2);
  CHECK_REFUSES(classic, ErrorCode::unsupported, "one of several disks");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory longer than the limit") {
  const std::uint64_t size = builder.end64_offset() - builder.directory_offset();
  CHECK(Opened(file, size).directory.has_value());
  CHECK_FAILS(Opened(file, size - 1).directory, ErrorCode::limit_exceeded,
              "directory has " + std::to_string(size));
}

// --- entries ---------------------------------------------------------------------------------

TEST_CASE_FIXTURE(TorchFile, "refuses encrypted records") {
  for (unsigned bit : {0u, 6u, 13u}) {
    Bytes other = file;
    patch(other, entry(data0) + 8, 0x0808u | 1u << bit, 2);
    CHECK_REFUSES(other, ErrorCode::unsupported, "\"archive/data/0\" is encrypted");
  }
}

TEST_CASE_FIXTURE(TorchFile, "refuses patch data") {
  patch(file, entry(data0) + 8, 0x0828, 2);
  CHECK_REFUSES(file, ErrorCode::unsupported, "\"archive/data/0\" is patch data");
}

TEST_CASE_FIXTURE(TorchFile, "refuses other compression methods by name") {
  const struct {
    std::uint64_t method;
    const char* name;
  } methods[] = {{1, "shrunk"}, {6, "imploded"},   {9, "deflate64"}, {12, "bzip2"},
                 {14, "LZMA"},  {93, "Zstandard"}, {95, "xz"},       {98, "PPMd"},
                 {99, "AES"},   {264, "unknown"}};
  for (const auto& [method, name] : methods) {
    Bytes other = file;
    patch(other, entry(data0) + 10, method, 2);
    CHECK_REFUSES(other, ErrorCode::unsupported,
                  "compression method " + std::to_string(method) + " (" + name);
  }
}

TEST_CASE_FIXTURE(TorchFile, "refuses a stored record of two sizes") {
  patch(file, entry(data0) + 24, 14, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "is stored, but has 13 bytes in the file and 14");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a record on another disk") {
  patch(file, entry(data0) + 34, 1, 2);
  CHECK_REFUSES(file, ErrorCode::unsupported, "is on disk 1");
}

TEST_CASE_FIXTURE(TorchFile, "refuses two records of one name") {
  file[entry(data1) + 46 + 13] = std::byte{'0'};
  CHECK_REFUSES(file, ErrorCode::corrupt, "two records are named \"archive/data/0\"");
}

TEST_CASE("refuses two data.pkl, far apart") {
  ArchiveBuilder builder;
  builder.add("a/data.pkl", "one");
  for (int i = 0; i < 100; ++i) builder.add("a/data/" + std::to_string(i), "w");
  builder.add("a/data.pkl", "two");
  CHECK_REFUSES(builder.finish(), ErrorCode::corrupt, "two records are named \"a/data.pkl\"");
}

TEST_CASE("refuses a name that comes again inside and outside the sorted run") {
  ArchiveBuilder builder;
  for (int i = 0; i < 100; ++i) builder.add("a/data/" + std::to_string(i), "w");
  builder.add("a/data/57", "again");
  CHECK_REFUSES(builder.finish(), ErrorCode::corrupt, "two records are named \"a/data/57\"");
}

TEST_CASE("refuses a name that comes twice outside the sorted run") {
  ArchiveBuilder builder;
  builder.add("a/x", "one").add("a/a", "");
  for (int i = 0; i < 100; ++i) builder.add("a/data/" + std::to_string(i), "w");
  builder.add("a/x", "two");
  CHECK_REFUSES(builder.finish(), ErrorCode::corrupt, "two records are named \"a/x\"");
}

TEST_CASE("refuses a name that comes again in a file without order") {
  ArchiveBuilder builder;
  for (int i = 0; i < 300; ++i) builder.add("a/" + std::to_string(i * 7919 % 299), "w");
  CHECK_REFUSES(builder.finish(), ErrorCode::corrupt, "two records are named \"a/0\"");
}

TEST_CASE("refuses two names that are equal without case") {
  CHECK_REFUSES(torch_archive({"w"}).add("archive/DATA.pkl", "other").finish(), ErrorCode::corrupt,
                "\"archive/data.pkl\" and \"archive/DATA.pkl\" are named alike but for case");
  CHECK_REFUSES(torch_archive({"w"}).add("archive/DATA/0", "other").finish(), ErrorCode::corrupt,
                "\"archive/data/0\" and \"archive/DATA/0\" are named alike but for case");
  CHECK_REFUSES(torch_archive({"w"}).add("Archive/data/0", "other").finish(), ErrorCode::corrupt,
                "\"archive/data/0\" and \"Archive/data/0\" are named alike but for case");
}

TEST_CASE("refuses two names that are equal without case, neither of them in lower case") {
  ArchiveBuilder builder = torch_archive({"w"});
  builder.add("archive/extra/Ab", "one").add("archive/extra/aB", "two");
  CHECK_REFUSES(builder.finish(), ErrorCode::corrupt,
                "\"archive/extra/Ab\" and \"archive/extra/aB\" are named alike but for case");
  ArchiveBuilder outside = torch_archive({"w"});
  outside.add("Other/x", "one").add("oTher/x", "two");
  CHECK_REFUSES(outside.finish(), ErrorCode::corrupt, "are named alike but for case");
}

TEST_CASE("accepts capitals in names that no other record has") {
  ArchiveBuilder builder;
  builder.add("Model_V2/data.pkl", "x").add("Model_V2/.data/A", "1").add("Other/README", "2");
  builder.add("Model_V2/data/Key", "3").add("Model_V2/data/Yek", "4");
  const Opened opened(builder.finish());
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->find("data/Key") != nullptr);
  CHECK(opened.directory->find("data/key") == nullptr);
}

TEST_CASE_FIXTURE(TorchFile, "refuses a zero byte in a name") {
  file[entry(data0) + 46 + 3] = std::byte{0};
  CHECK_REFUSES(file, ErrorCode::corrupt, "\"arc\\x00ive/data/0\" has a zero byte in its name");
}

TEST_CASE("refuses an empty name") {
  CHECK_REFUSES(ArchiveBuilder().add("", "x").finish(), ErrorCode::corrupt, "empty name");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a record that overlaps its neighbour") {
  const std::uint64_t room = builder.place(data1).header - builder.place(data0).header - 30 -
                             builder.place(data0).name.size();
  for (const std::uint64_t size : {room + 1, std::uint64_t{256} << 20}) {
    Bytes other = file;
    patch(other, entry(data0) + 20, size, 4);
    patch(other, entry(data0) + 24, size, 4);
    CHECK_REFUSES(other, ErrorCode::corrupt, "\"archive/data/0\" with");
  }
  patch(file, entry(data0) + 20, room, 4);
  patch(file, entry(data0) + 24, room, 4);
  CHECK(Opened(file).directory.has_value());  // only its local header can tell
}

TEST_CASE_FIXTURE(TorchFile, "refuses the last record if it reaches into the directory") {
  const std::size_t last = 7;
  patch(file, entry(last) + 20, 4000, 4);
  patch(file, entry(last) + 24, 4000, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "runs into the directory");
}

TEST_CASE_FIXTURE(TorchFile, "refuses records that share one body") {
  patch(file, entry(data1) + 42, builder.place(data0).header, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "runs into the next record");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a header beyond the records") {
  for (std::uint64_t header :
       {std::uint64_t{file.size()}, std::uint64_t{builder.directory_offset() - 10},
        std::uint64_t{0xFFFFFFFE}}) {
    Bytes other = file;
    patch(other, entry(data1) + 42, header, 4);
    CHECK_REFUSES(other, ErrorCode::corrupt, "\"archive/data/1\"");
  }
}

TEST_CASE_FIXTURE(TorchFile, "refuses sizes of 0xFFFFFFFF without a zip64 field") {
  patch(file, entry(data0) + 20, 0xFFFFFFFF, 4);
  patch(file, entry(data0) + 24, 0xFFFFFFFF, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "zip64 field of 0 bytes, expected 16");
}

TEST_CASE_FIXTURE(TorchFile, "refuses a header offset of 0xFFFFFFFF without a zip64 field") {
  patch(file, entry(data0) + 42, 0xFFFFFFFF, 4);
  CHECK_REFUSES(file, ErrorCode::corrupt, "zip64 field of 0 bytes, expected 8");
}

// An archive of one record whose entry has these extra fields and refers to them for its sizes.
Bytes with_extra(std::string_view extra, bool refer = true) {
  ArchiveBuilder builder;
  builder.add("a/x", "12345").finish();
  Bytes& file = builder.bytes();
  const std::size_t entry = builder.place(0).entry;
  file.erase(file.end() - 98, file.end());  // the end records
  if (refer) {
    patch(file, entry + 20, 0xFFFFFFFF, 4);
    patch(file, entry + 24, 0xFFFFFFFF, 4);
  }
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

TEST_CASE("refuses a zip64 field that is too short or too long") {
  CHECK_REFUSES(with_extra(raw("\x01\0\x08\0\x05\0\0\0\0\0\0\0")), ErrorCode::corrupt,
                "zip64 field of 8 bytes, expected 16");
  CHECK_REFUSES(with_extra(raw("\x01\0\x18\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")),
                ErrorCode::corrupt, "zip64 field of 24 bytes, expected 16");
}

TEST_CASE("refuses an extra field that runs out of its entry") {
  CHECK_REFUSES(with_extra(raw("\x01\0\x10\0\x05\0\0\0")), ErrorCode::corrupt,
                "extra field of 16 bytes with only 4 left");
  CHECK_REFUSES(with_extra(raw("XY\xFF\xFF.."), false), ErrorCode::corrupt,
                "extra field of 65535 bytes with only 2 left");
}

TEST_CASE("refuses two zip64 fields") {
  const std::string field(raw("\x01\0\x10\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0"));
  CHECK_REFUSES(with_extra(field + field), ErrorCode::corrupt, "two zip64 fields");
}

TEST_CASE("refuses zip64 sizes near 2^64") {
  CHECK_REFUSES(
      with_extra(
          raw("\x01\0\x10\0\xF8\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xF8\xFF\xFF\xFF\xFF\xFF\xFF\xFF")),
      ErrorCode::corrupt, "runs into the directory");
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

TEST_CASE_FIXTURE(TorchFile,
                  "refuses an entry whose name, extra or comment runs out of the directory") {
  for (std::size_t field : {28u, 30u, 32u}) {
    Bytes other = file;
    patch(other, entry(7) + field, 0xFFFF, 2);
    CHECK_REFUSES(other, ErrorCode::corrupt, "runs out of the directory");
  }
}

TEST_CASE_FIXTURE(TorchFile, "refuses a directory that ends inside an entry") {
  const std::size_t end = builder.end64_offset();
  file.erase(file.begin() + static_cast<std::ptrdiff_t>(end - 4),
             file.begin() + static_cast<std::ptrdiff_t>(end));
  set_directory(builder, builder.directory_offset(), end - 4 - builder.directory_offset());
  patch(file, builder.locator_offset() + 8, end - 4, 8);
  CHECK_REFUSES(file, ErrorCode::corrupt, "runs out of the directory");
}

TEST_CASE("reads 70,000 records and names of 65,000 bytes") {
  ArchiveBuilder builder;
  for (int i = 0; i < 70000; ++i) builder.add("a/data/" + std::to_string(i), "");
  const std::string long_name = "a/" + std::string(65000, 'n');
  builder.add(long_name, "x");
  const Opened opened(builder.finish());
  REQUIRE_OK(opened.directory);
  CHECK(opened.directory->records().size() == 70001);
  CHECK(opened.directory->find_full(long_name) == &opened.directory->records().back());
}

}  // namespace
}  // namespace weightmap::zip
