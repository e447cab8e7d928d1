#include <doctest/doctest.h>

#include <string>

#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"

namespace weightmap {
namespace {

using test::ArchiveBuilder;
using test::Bytes;
using test::patch;
using test::raw;
using test::TemporaryFolder;
using test::to_bytes;
using test::torch_archive;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::string_view inflated = "hello hello hello hello";
const Bytes deflated = to_bytes(raw("\xCB\x48\xCD\xC9\xC9\x57\xC8\x40\x27\x01"));

// A torch file with, in addition, a compressed and a plain record and one beside the top folder.
struct ArchiveFixture {
  ArchiveFixture() {
    builder.add_stored_as("archive/code.py", deflated, inflated.size(), zip::Method::deflated,
                          zip::crc32(to_bytes(inflated)));
    builder.add_plain("archive/notes", "plain").add("__MACOSX/x", "stray").finish();
  }
  std::filesystem::path write() const {
    return folder.write("model.pt", std::span<const std::byte>(bytes()));
  }
  const Bytes& bytes() const { return const_cast<ArchiveBuilder&>(builder).bytes(); }
  ArchiveReader open(const OpenOptions& options = {}) const {
    return ArchiveReader::open(write(), options).value();
  }

  TemporaryFolder folder;
  ArchiveBuilder builder = torch_archive({"first storage", "", "third"});
};
constexpr std::size_t data0 = 4;  // index of records in the builder
constexpr std::size_t code = 9;
constexpr std::size_t notes = 10;

TEST_CASE_FIXTURE(ArchiveFixture, "lists every record in directory order") {
  const ArchiveReader reader = open();
  CHECK(reader.archive_name() == "archive");
  REQUIRE(reader.record_count() == 12);
  CHECK(reader.records().size() == 12);
  const auto info = reader.record(data0);
  CHECK(info.name == "data/0");
  CHECK(info.header_offset == builder.place(data0).header);
  CHECK(info.size == 13);
  CHECK(info.stored_bytes == 13);
  CHECK(info.crc32 == builder.place(data0).crc32);
  CHECK_FALSE(info.deflated);
  CHECK(reader.record(code).deflated);
  CHECK(reader.record(code).stored_bytes == deflated.size());
  CHECK(reader.record(11).name == "__MACOSX/x");
}

TEST_CASE_FIXTURE(ArchiveFixture, "finds every record that it lists, and nothing else") {
  const ArchiveReader reader = open();
  for (const auto& info : reader.records()) {
    CHECK(reader.has(info.name));
    REQUIRE(reader.find(info.name).has_value());
    CHECK(reader.find(info.name)->header_offset == info.header_offset);
  }
  for (const char* name : {"data/3", "DATA.PKL", "x", "archive/data.pkl"}) {
    CHECK_FALSE(reader.has(name));
    CHECK_FALSE(reader.find(name).has_value());
  }
}

TEST_CASE_FIXTURE(ArchiveFixture, "answers sizes and offsets") {
  const ArchiveReader reader = open();
  CHECK(reader.find("code.py")->size == inflated.size());
  CHECK(reader.find("data/1")->size == 0);
  CHECK(reader.find("data/2")->header_offset == builder.place(data0 + 2).header);
  for (std::size_t i = 0; i < reader.record_count(); ++i) {
    CHECK(reader.payload_offset(reader.record(i).name).value() == builder.place(i).payload);
    CHECK(reader.payload_offset(reader.record(i).name).value() == builder.place(i).payload);
  }
}

TEST_CASE_FIXTURE(ArchiveFixture, "names the record that is not there, and the file") {
  const ArchiveReader reader = open();
  std::byte byte{};
  const std::string expected = "there is no record \"data/9\"";
  CHECK_FAILS(reader.payload_offset("data/9"), ErrorCode::not_found, expected);
  CHECK_FAILS(reader.read("data/9"), ErrorCode::not_found, expected);
  CHECK_FAILS(reader.read("data/9", {&byte, 1}), ErrorCode::not_found, expected);
  CHECK_FAILS(reader.verify_crc("data/9"), ErrorCode::not_found, expected);
  CHECK(reader.payload_offset("data/9").error().file == (folder.path() / "model.pt").string());
}

TEST_CASE_FIXTURE(ArchiveFixture, "reads stored, empty, plain and compressed records") {
  const ArchiveReader reader = open();
  CHECK(text_of(reader.read("data/0").value()) == "first storage");
  CHECK(reader.read("data/1").value().empty());
  CHECK(text_of(reader.read("notes").value()) == "plain");
  CHECK(text_of(reader.read("code.py").value()) == inflated);
  Bytes out(inflated.size());
  REQUIRE_OK(reader.read("code.py", out));
  CHECK(text_of(out) == inflated);
}

TEST_CASE_FIXTURE(ArchiveFixture, "reads only into a buffer of the record's size") {
  const ArchiveReader reader = open();
  for (std::size_t size : {0u, 12u, 14u}) {
    Bytes out(size);
    CHECK_FAILS(reader.read("data/0", out), ErrorCode::invalid_argument, "has 13");
  }
}

TEST_CASE("reads a large record with any number of threads") {
  const TemporaryFolder folder;
  std::string large(9 << 20, '\0');
  for (std::size_t i = 0; i < large.size(); i += 8) large[i] = static_cast<char>(i >> 13);
  ArchiveBuilder builder = torch_archive({large});
  const auto reader =
      ArchiveReader::open(folder.write("model.pt", std::span<const std::byte>(builder.finish())));
  REQUIRE_OK(reader);
  for (unsigned threads : {0u, 1u, 2u, 7u, 64u, 4000000000u}) {
    Bytes out(large.size());
    REQUIRE_OK(reader->read("data/0", out, threads));
    REQUIRE(text_of(out) == large);
  }
}

TEST_CASE_FIXTURE(ArchiveFixture, "a failed read in any thread is the answer") {
  const std::filesystem::path path = folder.path() / "large.pt";
  ArchiveBuilder large = torch_archive({std::string(4 << 20, 'w')});
  folder.write("large.pt", std::span<const std::byte>(large.finish()));
  const auto reader = ArchiveReader::open(path);
  REQUIRE_OK(reader);
  std::filesystem::resize_file(path, 3 << 20);
  Bytes out(4 << 20);
  CHECK_FAILS(reader->read("data/0", out, 4), ErrorCode::io, "the file shrank");
}

TEST_CASE_FIXTURE(ArchiveFixture, "confirms every CRC-32") {
  const ArchiveReader reader = open();
  for (const auto& info : reader.records()) CHECK(reader.verify_crc(info.name).value());
}

TEST_CASE_FIXTURE(ArchiveFixture, "tells a CRC-32 that was not computed from one that differs") {
  patch(builder.bytes(), builder.place(data0).entry + 16, 0, 4);
  builder.bytes()[builder.place(data0 + 2).payload] ^= std::byte{1};
  const ArchiveReader reader = open();
  CHECK_FALSE(reader.verify_crc("data/0").value());
  CHECK(reader.verify_crc("data/1").value());  // empty, so 0 is right
  CHECK_FAILS(reader.verify_crc("data/2"), ErrorCode::corrupt, "\"archive/data/2\" has CRC-32");
}

std::string produced(const RecordContent& content) {
  std::string all;
  REQUIRE_OK(content.produce()([&](std::span<const std::byte> part) {
    all.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Result<void>();
  }));
  CHECK(all.size() == content.size());
  return all;
}

TEST_CASE_FIXTURE(ArchiveFixture, "gives a record to be written again") {
  const ArchiveReader reader = open();
  const auto bytes = reader.read("code.py").value();
  const std::string all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CHECK(produced(reader.content("code.py").value()) == all);
  CHECK(produced(reader.content("data/1").value()).empty());
  CHECK_FAILS(reader.content("data/9"), ErrorCode::not_found, "data/9");
}

TEST_CASE_FIXTURE(ArchiveFixture, "what is written again is compared with its CRC-32") {
  builder.bytes()[builder.place(data0 + 2).payload] ^= std::byte{1};
  const ArchiveReader reader = open();
  const auto take = [](std::span<const std::byte>) { return Result<void>(); };
  CHECK_FAILS(reader.content("data/2").value().produce()(take), ErrorCode::corrupt,
              "\"archive/data/2\" has CRC-32");
  const auto refuse = [](std::span<const std::byte>) -> Result<void> {
    return failure(ErrorCode::io, "full");
  };
  CHECK_FAILS(reader.content("data/2").value().produce()(refuse), ErrorCode::io, "full");
}

TEST_CASE_FIXTURE(ArchiveFixture, "bounds what a compressed record may inflate to") {
  OpenOptions options;
  options.limits.record_bytes = inflated.size() - 1;
  const ArchiveReader reader = open(options);
  CHECK_FAILS(reader.read("code.py"), ErrorCode::limit_exceeded, "the limit is 22");
  CHECK_FAILS(reader.verify_crc("code.py"), ErrorCode::limit_exceeded, "the limit is 22");
  CHECK(reader.read("data/0").has_value());
}

TEST_CASE_FIXTURE(ArchiveFixture, "reads a record that shows its size in the local header only") {
  const ArchiveReader reader = open();
  CHECK(reader.find("notes")->size == builder.place(notes).size);
}

// --- version and serialization id --------------------------------------------------------------

Result<ArchiveReader> with_version(const TemporaryFolder& folder, std::string_view name,
                                   std::string_view content) {
  ArchiveBuilder builder;
  builder.add("archive/data.pkl", "pickle");
  if (!name.empty()) builder.add("archive/" + std::string(name), content);
  return ArchiveReader::open(
      folder.write("model.pt", std::span<const std::byte>(builder.finish())));
}

TEST_CASE("understands versions 1 to 10, under both names") {
  const TemporaryFolder folder;
  CHECK(with_version(folder, "version", "3\n").value().version().value() == 3);
  CHECK(with_version(folder, "version", "1").value().version().value() == 1);
  CHECK(with_version(folder, ".data/version", "10\n").value().version().value() == 10);
}

TEST_CASE("refuses a version that is missing or not a number") {
  const TemporaryFolder folder;
  CHECK_FAILS(with_version(folder, "", "").value().version(), ErrorCode::corrupt,
              "no version record");
  for (const char* text : {"", "three", "3.0", "-3", "99999999999999999999"})
    CHECK_FAILS(with_version(folder, "version", text).value().version(), ErrorCode::corrupt,
                "expected a number");
}

TEST_CASE_FIXTURE(ArchiveFixture, "answers the serialization id") {
  CHECK(open().serialization_id().value() == std::string(40, '7'));
}

TEST_CASE("answers no serialization id where there is none, and refuses an odd one") {
  const TemporaryFolder folder;
  CHECK_FALSE(with_version(folder, "version", "3").value().serialization_id().value().has_value());
  CHECK_FAILS(with_version(folder, ".data/serialization_id", "1234").value().serialization_id(),
              ErrorCode::corrupt, "holds \"1234\", expected 40 digits");
}

// --- opening -----------------------------------------------------------------------------------

TEST_CASE("names the file that cannot be opened") {
  const TemporaryFolder folder;
  const auto missing = ArchiveReader::open(folder.path() / "missing.pt");
  CHECK_FAILS(missing, ErrorCode::io, "No such file");
  CHECK(missing.error().file == (folder.path() / "missing.pt").string());
  CHECK_FAILS(ArchiveReader::open(folder.path()), ErrorCode::not_a_checkpoint, "is a directory");
}

TEST_CASE("refuses a file that is no archive") {
  const TemporaryFolder folder;
  CHECK_FAILS(ArchiveReader::open(folder.write("model.pt", "just some text")),
              ErrorCode::not_a_checkpoint, "");
}

TEST_CASE_FIXTURE(ArchiveFixture, "bounds the size of the directory") {
  OpenOptions options;
  options.limits.directory_bytes = 100;
  CHECK_FAILS(ArchiveReader::open(write(), options), ErrorCode::limit_exceeded, "the limit is 100");
}

// Python's zipfile knows nothing of torch's padding, so its archives take the other ways.
TEST_CASE("reads archives that Python's zipfile wrote") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "python.zip";
  const auto script = folder.write("make.py",
                                   "import sys, zipfile\n"
                                   "with zipfile.ZipFile(sys.argv[1], 'w') as z:\n"
                                   "    z.writestr('model/data.pkl', b'stored')\n"
                                   "    z.writestr('model/text', b'hello ' * 1000,\n"
                                   "               compress_type=zipfile.ZIP_DEFLATED)\n"
                                   "    with z.open('model/big', 'w', force_zip64=True) as f:\n"
                                   "        f.write(b'forced')\n"
                                   "    z.comment = b'a comment'\n");
  const std::string command = "python3 " + script.string() + " " + path.string();
  REQUIRE(std::system(command.c_str()) == 0);
  const auto reader = ArchiveReader::open(path);
  REQUIRE_OK(reader);
  CHECK(reader->archive_name() == "model");
  CHECK(text_of(reader->read("data.pkl").value()) == "stored");
  CHECK(reader->read("text").value().size() == 6000);
  CHECK(reader->record(1).deflated);
  CHECK(text_of(reader->read("big").value()) == "forced");
  for (const auto& info : reader->records()) CHECK(reader->verify_crc(info.name).value());
}

}  // namespace
}  // namespace weightmap
