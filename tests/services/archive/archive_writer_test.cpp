#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"

namespace weightmap {
namespace {

using test::Bytes;
using test::read_file;
using test::TemporaryFolder;
using test::to_bytes;

using Compression = ArchiveWriter::Compression;

std::filesystem::path fixture(std::string_view name) {
  return std::filesystem::path(WEIGHTMAP_TEST_DATA) / name;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An archive in memory.
struct Target {
  Bytes bytes;
  ArchiveWriter writer;
  explicit Target(const ArchiveWriterOptions& options = {})
      : writer(ArchiveWriter::to_function(
                   [this](std::span<const std::byte> part) -> Result<void> {
                     bytes.insert(bytes.end(), part.begin(), part.end());
                     return {};
                   },
                   options)
                   .value()) {}
};

// That of one record.
Bytes archive_of(std::string_view name, const RecordContent& content) {
  Target target;
  REQUIRE_OK(target.writer.write(name, content));
  REQUIRE_OK(target.writer.finish());
  return std::move(target.bytes);
}

ArchiveReader reopened(const TemporaryFolder& folder, const Bytes& bytes) {
  Result<ArchiveReader> archive =
      ArchiveReader::open(folder.write("again.pt", std::span<const std::byte>(bytes)));
  REQUIRE_OK(archive);
  return std::move(*archive);
}

bool is_written_by_finish(std::string_view name) {
  return name == "version" || name == ".data/serialization_id";
}

// All records of `from`, in their order, through a writer.
std::string copied(const std::filesystem::path& from, const std::filesystem::path& to,
                   ArchiveWriterOptions options) {
  const ArchiveReader reader = ArchiveReader::open(from).value();
  options.archive_name = reader.archive_name();
  ArchiveWriter writer = ArchiveWriter::create(to, options).value();
  for (const ArchiveReader::RecordInfo& record : reader.records()) {
    if (is_written_by_finish(record.name)) continue;
    const std::vector<std::byte> content = reader.read(record.name).value();
    REQUIRE_OK(writer.write(record.name, RecordContent::bytes(content)));
  }
  REQUIRE_OK(writer.finish());
  return read_file(to);
}

struct Folder {
  TemporaryFolder folder;
};

TEST_SUITE("archive writer") {
  TEST_CASE_FIXTURE(
      Folder, "writes the records of torch's files to the same bytes, serialization id included") {
    struct Case {
      std::string_view name;
      ArchiveWriterOptions options;
    };
    ArchiveWriterOptions aligned;
    aligned.alignment = 4096;
    ArchiveWriterOptions without_crc;
    without_crc.crc32 = false;
    for (const Case& given : {
             Case{"state_dict.pt", {}},
             Case{"views.pt", {}},
             Case{"training.pt", {}},
             Case{"scalars_and_empty.pt", {}},
             Case{"many_state_dict.pt", {}},
             Case{"old_order.pt", {}},
             Case{"renamed.tar.pt", {}},
             Case{"aligned_4096.pt", aligned},
             Case{"no_crc.pt", without_crc},
         }) {
      CAPTURE(given.name);
      CHECK(copied(fixture(given.name), folder.path() / "copy.pt", given.options) ==
            read_file(fixture(given.name)));
    }
  }

  TEST_CASE_FIXTURE(Folder, "calls the top folder what torch.save calls it") {
    for (const auto& [file, name] : {std::pair{"model.pt", "model"},
                                     {"model.tar.pt", "model.tar"},
                                     {"model", "model"},
                                     {".pt", "archive"},
                                     {"modèle.pt", "archive"}}) {
      ArchiveWriter writer = ArchiveWriter::create(folder.path() / file).value();
      REQUIRE_OK(writer.write("a", RecordContent::text("1")));
      REQUIRE_OK(writer.finish());
      const ArchiveReader archive = ArchiveReader::open(folder.path() / file).value();
      CHECK(archive.archive_name() == name);
    }
  }

  TEST_CASE_FIXTURE(Folder, "content that is produced part by part") {
    Bytes content((std::size_t{5} << 20) + 3);
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i % 251);
    const auto produce = [&](const RecordContent::Take& take) -> Result<void> {
      for (std::size_t at = 0; at < content.size(); at += 1000000)
        if (Result<void> ok = take(std::span(content).subspan(
                at, std::min<std::size_t>(1000000, content.size() - at)));
            !ok)
          return ok;
      return {};
    };
    const Bytes made = archive_of("big", RecordContent::produced(content.size(), produce));
    CHECK(made == archive_of("big", RecordContent::bytes(content)));
    CHECK(reopened(folder, made).verify_crc("big").value());
  }

  TEST_CASE_FIXTURE(Folder, "zeros are a hole with the checksum of zeros") {
    const Bytes zeros(std::size_t{1} << 20);
    const Bytes made = archive_of("zeros", RecordContent::zeros(zeros.size()));
    CHECK(made == archive_of("zeros", RecordContent::bytes(zeros)));
    const ArchiveReader archive = reopened(folder, made);
    CHECK(archive.find("zeros")->crc32 == 0xA738EA1C);
  }

  TEST_CASE_FIXTURE(Folder, "deflates what becomes smaller, and stores what does not") {
    Target target;
    const std::string code(1000, 'x');
    REQUIRE_OK(target.writer.write("code", RecordContent::text(code), Compression::deflated));
    REQUIRE_OK(target.writer.write("short", RecordContent::text("ab"), Compression::deflated));
    REQUIRE_OK(target.writer.write("empty", RecordContent::text(""), Compression::deflated));
    REQUIRE_OK(target.writer.finish());
    const ArchiveReader archive = reopened(folder, target.bytes);
    CHECK(archive.find("code")->deflated);
    CHECK(archive.find("code")->stored_bytes < 50);
    CHECK_FALSE(archive.find("short")->deflated);
    CHECK_FALSE(archive.find("empty")->deflated);
    CHECK(text_of(archive.read("code").value()) == code);
    CHECK(archive.verify_crc("code").value());
  }

  TEST_CASE_FIXTURE(
      Folder, "reserved records have the places of a written archive, and no space on the disk") {
    const std::uint64_t size = std::uint64_t{64} << 20;
    const auto places = [&](const std::filesystem::path& path, const RecordContent& content) {
      ArchiveWriter writer = ArchiveWriter::create(path).value();
      const ArchiveWriter::Place first = writer.write("data/0", content).value();
      const ArchiveWriter::Place second = writer.write("data/1", content).value();
      REQUIRE_OK(writer.finish());
      return std::array{first.offset, second.offset};
    };
    const Bytes zeros(size);
    const auto reserved = places(folder.path() / "hole.pt", RecordContent::reserved(size));
    CHECK(reserved == places(folder.path() / "full.pt", RecordContent::bytes(zeros)));
    struct stat hole {};
    REQUIRE(::stat((folder.path() / "hole.pt").c_str(), &hole) == 0);
    CHECK(static_cast<std::uint64_t>(hole.st_blocks) * 512 < size);
    const ArchiveReader archive = ArchiveReader::open(folder.path() / "hole.pt").value();
    CHECK(archive.find("data/0")->crc32 == 0);
    CHECK(std::filesystem::file_size(folder.path() / "hole.pt") ==
          std::filesystem::file_size(folder.path() / "full.pt"));
  }

  TEST_CASE_FIXTURE(Folder, "a stream gets zeros for what is reserved") {
    const Bytes made = archive_of("data/0", RecordContent::reserved(3000000));
    CHECK(reopened(folder, made).read("data/0").value() == Bytes(3000000));
  }

  TEST_CASE_FIXTURE(Folder,
                    "the version is written at the end, as the highest that somebody needs") {
    struct Case {
      std::vector<std::uint64_t> needs;
      std::string_view name;
      std::string_view text;
    };
    for (const auto& [needs, name, text] :
         {Case{{}, "version", "3\n"}, Case{{1}, "version", "3\n"}, Case{{5, 4}, "version", "5\n"},
          Case{{6}, ".data/version", "6\n"}, Case{{4, 10}, ".data/version", "10\n"}}) {
      Target target;
      for (const std::uint64_t need : needs) REQUIRE_OK(target.writer.require_version(need));
      REQUIRE_OK(target.writer.finish());
      const ArchiveReader archive = reopened(folder, target.bytes);
      CHECK(archive.record(0).name == name);
      CHECK(text_of(archive.read(name).value()) == text);
      CHECK(archive.version().has_value());
    }
  }

  TEST_CASE("refuses a version that nobody reads") {
    Target target;
    CHECK_FAILS(target.writer.require_version(11), ErrorCode::invalid_argument,
                "version 11 is higher than the highest there is, 10");
  }

  TEST_CASE("refuses names") {
    for (const auto& [name, message] :
         {std::pair<std::string, std::string>{"", "\"\" is empty"},
          {"/a", "is not a relative path"},
          {"a/", "is not a relative path"},
          {"a//b", "is not a relative path"},
          {"../a", "is not a relative path"},
          {"a/./b", "is not a relative path"},
          {std::string("a\0b", 3), "has a NUL or a backslash in it"},
          {"a\\b", "has a NUL or a backslash in it"},
          {"a\xFF", "\"a\\xFF\" is not UTF-8"},
          {std::string(65528, 'a'), "is longer than the 65535 bytes"}}) {
      Target target;
      CHECK_FAILS(target.writer.write(name, RecordContent::text("")), ErrorCode::invalid_argument,
                  message);
    }
  }

  TEST_CASE("refuses a storage's name that is there already, in any order and any letters") {
    struct Case {
      std::vector<std::string> names;
      std::string again;
    };
    const std::vector<Case> cases{{{"data/0", "data/1"}, "data/0"},
                                  {{"data/0", "data/1"}, "data/1"},
                                  {{"data/0", "data/1"}, "Data/1"},
                                  {{"DATA/0"}, "data/0"},
                                  {{"data/1"}, "data/1"},
                                  {{"data/1", "data/0"}, "data/1"},
                                  {{"data/0", "data/2", "data/1"}, "data/2"},
                                  {{"data/0", "dATA/1"}, "data/1"},
                                  {{"data/0", "data/01", "data/1"}, "data/01"},
                                  {{"data/123456789", "data/0"}, "data/123456789"}};
    for (const Case& each : cases) {
      INFO(each.names.back(), " then ", each.again);
      Target target;
      for (const std::string& name : each.names)
        REQUIRE_OK(target.writer.write(name, RecordContent::text("1")));
      CHECK_FAILS(target.writer.write(each.again, RecordContent::text("2")),
                  ErrorCode::invalid_argument, "is in the archive already");
    }
  }

  TEST_CASE("refuses a name that is there already, also in other letters of the case") {
    for (const std::string_view name : {"data/a", "DATA/A"}) {
      Target target;
      REQUIRE_OK(target.writer.write("data/a", RecordContent::text("1")));
      CHECK_FAILS(target.writer.write(name, RecordContent::text("2")), ErrorCode::invalid_argument,
                  "is in the archive already");
    }
  }

  TEST_CASE("refuses an alignment that the padding cannot express") {
    ArchiveWriterOptions options;
    for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{65505}}) {
      options.alignment = alignment;
      CHECK_FAILS(ArchiveWriter::to_function(nullptr, options), ErrorCode::invalid_argument,
                  "the padding of a record can make it 1 to 65504 bytes");
    }
  }

  TEST_CASE_FIXTURE(Folder, "takes every alignment that it can express") {
    for (const std::uint64_t alignment : {1u, 3u, 512u, 4096u, 32768u, 65504u}) {
      ArchiveWriterOptions options;
      options.alignment = alignment;
      Target target(options);
      REQUIRE_OK(target.writer.write(".storage_alignment",
                                     RecordContent::text(std::to_string(alignment))));
      for (const std::string_view name : {"data/0", "data/1", "data/22"})
        CHECK(target.writer.write(name, RecordContent::text("some bytes"))->offset % alignment ==
              0);
      REQUIRE_OK(target.writer.finish());
      const ArchiveReader archive = reopened(folder, target.bytes);
      for (const std::string_view name : {"data/0", "data/1", "data/22"})
        CHECK(archive.payload_offset(name).value() % alignment == 0);
    }
  }

  TEST_CASE("refuses archive names that are no folder") {
    ArchiveWriterOptions options;
    for (const std::string_view name : {"a/b", "..", "a\\b"}) {
      options.archive_name = name;
      CHECK_FAILS(ArchiveWriter::to_function(nullptr, options), ErrorCode::invalid_argument,
                  "the archive's name");
    }
  }

  TEST_CASE("content that turns out to have another size is an error") {
    for (const auto& [part, message] :
         {std::pair{"short", "the record \"data/0\" was announced with 10 bytes and got 5"},
          {"much too long", "the record \"data/0\" was announced with 10 bytes and got more"}}) {
      Target target;
      const std::string_view text = part;
      CHECK_FAILS(target.writer.write("data/0", RecordContent::produced(
                                                    10,
                                                    [&](const RecordContent::Take& take) {
                                                      return take(std::as_bytes(std::span(text)));
                                                    })),
                  ErrorCode::invalid_argument, message);
    }
  }

  TEST_CASE_FIXTURE(
      Folder, "an archive of another size than announced is an error, and leaves nothing behind") {
    {
      ArchiveWriter writer = ArchiveWriter::create(folder.path() / "new.pt").value();
      REQUIRE_OK(writer.reserve_space(100000));
      REQUIRE_OK(writer.write("a", RecordContent::text("hello")));
      CHECK_FAILS(writer.finish(), ErrorCode::invalid_argument,
                  "the archive was announced with 100000 bytes and has");
    }
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("refuses whatever comes after the end") {
    Target target;
    REQUIRE_OK(target.writer.write("a", RecordContent::text("x")));
    REQUIRE_OK(target.writer.finish());
    CHECK_FAILS(target.writer.write("b", RecordContent::text("")), ErrorCode::invalid_argument,
                "the archive is finished");
    CHECK_FAILS(target.writer.finish(), ErrorCode::invalid_argument, "the archive is finished");
  }

  TEST_CASE_FIXTURE(Folder, "what the content or the target fails with is passed on, and stays") {
    {
      ArchiveWriter writer = ArchiveWriter::create(folder.path() / "new.pt").value();
      const auto vanished =
          RecordContent::produced(8, [](const RecordContent::Take&) -> Result<void> {
            return failure(ErrorCode::io, "the tensor is gone");
          });
      CHECK_FAILS(writer.write("data/0", vanished), ErrorCode::io,
                  "the record \"data/0\": the tensor is gone");
      CHECK_FAILS(writer.write("data/1", RecordContent::text("")), ErrorCode::io,
                  "the tensor is gone");
    }
    CHECK(std::filesystem::is_empty(folder.path()));
    ArchiveWriter full = ArchiveWriter::to_function([](std::span<const std::byte>) -> Result<void> {
                           return failure(ErrorCode::io, "no space left");
                         }).value();
    REQUIRE_OK(full.write("a", RecordContent::text("x")));
    CHECK_FAILS(full.finish(), ErrorCode::io, "no space left");
  }

  TEST_CASE_FIXTURE(Folder, "stops when the progress says so, and leaves nothing behind") {
    const Bytes zeros(std::size_t{16} << 20);
    {
      ArchiveWriterOptions options;
      options.progress = [](std::uint64_t done, std::uint64_t all) {
        CHECK(done <= all);
        return done < (std::uint64_t{8} << 20);
      };
      ArchiveWriter writer = ArchiveWriter::create(folder.path() / "new.pt", options).value();
      CHECK_FAILS(writer.write("data/0", RecordContent::bytes(zeros)), ErrorCode::cancelled,
                  "the writing was stopped");
    }
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE_FIXTURE(Folder, "what had the name stays until the archive is finished") {
    const std::filesystem::path path = folder.write("model.pt", "old");
    {
      ArchiveWriter writer = ArchiveWriter::create(path).value();
      REQUIRE_OK(writer.write("a", RecordContent::text("new")));
    }
    CHECK(read_file(path) == "old");
    ArchiveWriter writer = ArchiveWriter::create(path).value();
    REQUIRE_OK(writer.write("a", RecordContent::text("new")));
    CHECK(read_file(path) == "old");
    REQUIRE_OK(writer.finish());
    CHECK(text_of(ArchiveReader::open(path).value().read("a").value()) == "new");
  }

  TEST_CASE_FIXTURE(Folder, "records beyond 4 GiB have the fields that torch gives them") {
    const std::filesystem::path path = folder.path() / "large.pt";
    ArchiveWriter writer = ArchiveWriter::create(path).value();
    const std::uint64_t size = 0xFFFFFFFF;
    const ArchiveWriter::Place large =
        writer.write("data/0", RecordContent::reserved(size)).value();
    const ArchiveWriter::Place behind = writer.write("data/1", RecordContent::text("x")).value();
    REQUIRE_OK(writer.finish());
    CHECK(behind.header_offset == large.offset + size + 24);
    const ArchiveReader archive = ArchiveReader::open(path).value();
    CHECK(archive.find("data/0")->size == size);
    CHECK(archive.payload_offset("data/1").value() == behind.offset);
    CHECK(text_of(archive.read("data/1").value()) == "x");
  }
}

}  // namespace
}  // namespace weightmap
