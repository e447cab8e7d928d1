// FILE//MEMBER: what lies uncompressed in a tar or zip archive opens as the file that it is.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/tar_builder.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::int32_t f32 = 0;  // of GGUF

std::string text_of(test::ArchiveBuilder& finished) { return test::text_of(finished.bytes()); }

std::string zip_of(const std::string& name, const std::string& content, std::size_t front = 0) {
  test::ArchiveBuilder builder;
  builder.add_plain(name, content).finish();
  return std::string(front, '#') + text_of(builder);
}

std::string gguf(std::uint64_t offset = 0) {
  test::GgufBuilder builder;
  builder.describe("w", {4}, f32, offset);
  return builder.file() + "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40"s;
}

struct Fixture {
  test::TemporaryFolder folder;

  fs::path member(const std::string& archive, const std::string& name) {
    return folder.write("archive", archive).native() + "//" + name;
  }
  Result<Checkpoint> open(const std::string& archive, const std::string& name,
                          const OpenOptions& options = {}) {
    return Checkpoint::open(member(archive, name), options);
  }
};

std::vector<fs::path> fixtures() {
  std::vector<fs::path> files;
  for (const fs::path& at : {test::data, test::data / "legacy", test::data / "npz"})
    for (const auto& entry : fs::directory_iterator(at))
      if (entry.is_regular_file() && entry.path().extension() != ".py" &&
          entry.path().extension() != ".json")
        files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// A tensor is the same in both, and its bytes lie where it says that they do.
void check_same(const NamedTensor& one, const NamedTensor& other, const std::string& file) {
  CAPTURE(one.name);
  CHECK(one.name == other.name);
  CHECK(one.storage == other.storage);
  CHECK(one.view.dtype() == other.view.dtype());
  CHECK(std::ranges::equal(one.view.shape(), other.view.shape()));
  const std::span<const std::byte> bytes = other.view.bytes();
  CHECK(std::ranges::equal(one.view.bytes(), bytes));
  if (other.is_copied || bytes.empty()) return;
  CHECK(std::ranges::equal(std::as_bytes(std::span(file)).subspan(other.file_offset, bytes.size()),
                           bytes));
}

void check_same(const Checkpoint& one, const Checkpoint& other, const fs::path& archive) {
  const std::string file = test::read_file(archive);
  const auto tensors = one.tensors();
  const auto within = other.tensors();
  REQUIRE(tensors.size() == within.size());
  CHECK(one.info().format == other.info().format);
  CHECK(one.info().storages == other.info().storages);
  for (std::size_t i = 0; i < tensors.size(); ++i) check_same(tensors[i], within[i], file);
  const CrcReport sums = verify_crc(one);
  const CrcReport sums_within = verify_crc(other);
  CHECK(sums.faults.size() == sums_within.faults.size());
  CHECK(sums.storages_checked == sums_within.storages_checked);
  CHECK(sums.bytes == sums_within.bytes);
  REQUIRE_OK(verify_headers(other));
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "every kind of file is the same within a tar and at odd places of a zip") {
  for (const fs::path& path : fixtures()) {
    CAPTURE(path.native());
    const std::string content = test::read_file(path);
    const std::string name = path.filename();
    const Result<Checkpoint> alone = Checkpoint::open(path);
    for (const std::string& archive : {test::tar({{.name = "./first", .content = "x"},
                                                  {.name = "./" + name, .content = content}}),
                                       zip_of(name, content), zip_of("f/" + name, content, 3)}) {
      const std::string prefix = archive.starts_with("#") ? "f/" : "";
      for (const Verify verify : {Verify::chain, Verify::headers, Verify::crc}) {
        const Result<Checkpoint> within =
            open(archive, prefix + name, OpenOptions{.verify = verify});
        if (verify == Verify::chain) {
          CHECK(alone.has_value() == within.has_value());
          if (!alone && !within) CHECK(alone.error().message == within.error().message);
        }
        if (alone && within) check_same(*alone, *within, folder.path() / "archive");
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a GGUF behind a program, as llamafile has it") {
  const Checkpoint opened = test::opened(
      member("MZqFpD='\n" + std::string(777, 'x') + zip_of("model.gguf", gguf(), 5), "model.gguf"));
  CHECK(opened.info().format == Format::gguf);
  CHECK(opened.get("w")->view.nbytes() == 16);
  CHECK(Backing(opened).opened_paths().front().native().ends_with("/archive//model.gguf"));
  CHECK(opened.source(0).path == folder.path() / "archive");
}

TEST_CASE_FIXTURE(Fixture,
                  "names are GNU's long ones, those of pax headers, and the last of several") {
  const std::string longer = std::string(150, 'n') + ".gguf";
  const std::string text = "path=" + longer + "\n";
  CHECK(open(test::tar({{.name = "L", .content = longer + '\0', .type = 'L'},
                        {.name = "cut", .content = gguf()}}),
             longer));
  CHECK(open(test::tar({{.name = "pax", .content = "165 " + text, .type = 'x'},
                        {.name = "cut", .content = gguf()}}),
             longer));
  CHECK(open(test::tar({{.name = "a", .content = "old"}, {.name = "a", .content = gguf()}}), "a"));
}

TEST_CASE_FIXTURE(Fixture, "a path that exists is that file, however many slashes it has") {
  fs::create_directory(folder.path() / "a");
  folder.write("a/b", gguf());
  CHECK(Checkpoint::open(folder.path().native() + "//a//b"));
  folder.write("a/x.tar", test::tar({{.name = "m", .content = gguf()}}));
  CHECK(Checkpoint::open(folder.path().native() + "//a///x.tar//m"));
  CHECK_FAILS(Checkpoint::open(folder.path().native() + "/a//none"), ErrorCode::io,
              "No such file or directory");
  CHECK_FAILS(Checkpoint::open(folder.path().native() + "/a/x.tar/m"), ErrorCode::io,
              "a member of an archive is FILE//MEMBER, with two slashes");
}

TEST_CASE_FIXTURE(Fixture, "members and files are opened together as one checkpoint") {
  test::GgufBuilder builder;
  const fs::path other = folder.write("other.gguf", builder.tensor("v", {1}, f32, "abcd").file());
  const std::vector<fs::path> files = {member(test::tar({{.name = "m", .content = gguf()}}), "m"),
                                       other};
  const Checkpoint opened = Checkpoint::open_files(files).value();
  const float* const first = reinterpret_cast<const float*>(opened.get("w")->view.data());
  CHECK(first[3] == 4.0f);
  CHECK(opened.get("w")->file_offset > 512);
  CHECK(opened.get("v")->view.nbytes() == 4);
}

TEST_CASE_FIXTURE(Fixture, "what is written to a member reaches its place in the file") {
  const fs::path path = member(test::tar({{.name = "m", .content = gguf()}}), "m");
  Checkpoint opened = test::opened(path, OpenOptions{.writable = true});
  const NamedTensor tensor = *opened.get("w");
  (*opened.writable_bytes(tensor.view))[0] = std::byte{'!'};
  CHECK(test::read_file(folder.path() / "archive")[tensor.file_offset] == '!');
}

TEST_CASE_FIXTURE(Fixture, "the records of an archive within an archive have offsets in the file") {
  const std::string content = test::read_file(test::data / "state_dict.pt");
  const Result<ArchiveReader> archive =
      ArchiveReader::open(member(test::tar({{.name = "m", .content = content}}), "m"));
  REQUIRE_OK(archive);
  const Result<ArchiveReader> alone = ArchiveReader::open(test::data / "state_dict.pt");
  for (const ArchiveReader::RecordInfo& record : alone->records()) {
    CAPTURE(record.name);
    CHECK(*archive->payload_offset(record.name) == *alone->payload_offset(record.name) + 512);
    CHECK(archive->find(record.name)->header_offset == record.header_offset + 512);
    CHECK(*archive->read(record.name) == *alone->read(record.name));
  }
}

TEST_CASE_FIXTURE(Fixture, "a member is converted as the file that it is") {
  for (const char* const name : {"training.pt", "aligned_4096.pt", "scripted.pt", "legacy/dict.pt",
                                 "rezipped_deflated.pt", "npz/stored.npz"})
    for (const char* const target : {"pt", "safetensors"}) {
      CAPTURE(name);
      CAPTURE(target);
      const fs::path path = test::data / name;
      const fs::path within =
          member(test::tar({{.name = "m", .content = test::read_file(path)}}), "m");
      const fs::path from_file = folder.path() / ("file."s + target);
      const fs::path from_member = folder.path() / ("member."s + target);
      const Result<ConvertReport> one = convert(path, from_file);
      const Result<ConvertReport> other = convert(within, from_member);
      CHECK(one.has_value() == other.has_value());
      if (!one || !other) continue;
      CHECK(one->left_out == other->left_out);
      CHECK(one->tensors == other->tensors);
      const Checkpoint made = test::opened(from_file);
      const Checkpoint made_of_member = test::opened(from_member);
      CHECK(made.info().storage_alignment == made_of_member.info().storage_alignment);
      check_same(made, made_of_member, from_member);
    }
}

TEST_CASE_FIXTURE(Fixture, "errors have the member's name and the offset in the file") {
  const auto offset_of = [](const Result<Checkpoint>& result) {
    return result.error().file_offset;
  };
  const Result<Checkpoint> alone = Checkpoint::open(folder.write("m", "GGUF\7\0\0\0"s + gguf()));
  const Result<Checkpoint> within =
      open(test::tar({{.name = "m", .content = "GGUF\7\0\0\0"s + gguf()}}), "m");
  REQUIRE_FALSE(within.has_value());
  CHECK(within.error().message == alone.error().message);
  CHECK(within.error().file.ends_with("archive//m"));
  CHECK(offset_of(within) == offset_of(alone) + 512);
}

TEST_CASE_FIXTURE(Fixture, "a member that is not there is refused with those that are") {
  CHECK_FAILS(
      open(test::tar({{.name = "./a", .content = "1"}, {.name = "b\n", .content = "2"}}), "none"),
      ErrorCode::io, R"(the archive has no member "none"; it has "a", "b\x0A")");
  std::vector<test::TarEntry> many(10, {.name = "n", .content = ""});
  CHECK_FAILS(open(test::tar(many), "none"), ErrorCode::io, R"("n", "n" and 2 more)");
  CHECK_FAILS(open(zip_of("a", "1"), "none"), ErrorCode::io, R"(no member "none"; it has "a")");
  CHECK_FAILS(open(test::tar({{.name = "f/", .content = "", .type = '5'}}), "f/"), ErrorCode::io,
              "the archive has no members");
  CHECK(open(zip_of("a", "1"), "none").error().os_error == ENOENT);
}

TEST_CASE_FIXTURE(Fixture, "refuses members that are no whole files of their own") {
  using enum ErrorCode;
  const auto tar_of = [](const std::string& name, const std::string& content) {
    return test::tar({{.name = name, .content = content}});
  };
  test::ArchiveBuilder deflated, twins;
  deflated.add_stored_as("m", test::to_bytes("\x03\0"s), 0, zip::Method::deflated, 0).finish();
  twins.add_plain("m", gguf()).add_plain("./m", gguf()).finish();
  std::string lying = zip_of("m", gguf());
  lying[30] = 'n';
  test::GgufBuilder part;
  part.split(0, 2, 2).tensor("w", {1}, f32, "abcd");
  const std::string one_file =
      "two members are named \"m\", one of them perhaps with \"./\" before it";
  const struct {
    const char* name;
    std::string archive;
    const char* member;
    ErrorCode code;
    std::string words;
  } rows[] = {
      {"an empty one of a tar", tar_of("m", ""), "m", not_a_checkpoint, "the member is empty"},
      {"an empty one of a zip", zip_of("m", ""), "m", not_a_checkpoint, "the member is empty"},
      {"a member of a member", tar_of("t", tar_of("m", gguf())), "t//m", io,
       "members of members are not opened: extract \"t\" first"},
      {"a compressed one", text_of(deflated), "m", unsupported,
       "extract it (unzip FILE MEMBER) and open that"},
      {"a sparse one of GNU", test::tar({{.name = "m", .content = gguf(), .type = 'S'}}), "m",
       unsupported, "without its zeros (sparse)"},
      {"a sparse one of pax",
       test::tar({{.name = "pax", .content = "22 GNU.sparse.major=1\n", .type = 'x'},
                  {.name = "m", .content = gguf()}}),
       "m", unsupported, "without its zeros (sparse)"},
      {"one file of two when extracted", text_of(twins), "m", corrupt, one_file},
      {"the other name of that", text_of(twins), "./m", corrupt, one_file},
      {"a local header that says another thing", lying, "m", corrupt, "m"},
      {"a tensor that goes on behind its member, before a tar's next header",
       test::tar(
           {{.name = "m", .content = gguf(32)}, {.name = "n", .content = std::string(4096, 'n')}}),
       "m", corrupt, "\"w\""},
      {"one of two files of GGUF", tar_of("m-00001-of-00002.gguf", part.file()),
       "m-00001-of-00002.gguf", unsupported,
       "is one of 2 files of a checkpoint, and files beside a member"},
      {"an index", tar_of("m.index.json", R"({"weight_map": {"w": "m.safetensors"}})"),
       "m.index.json", unsupported, "is an index of shards, and files beside a member"},
      {"metadata of a distributed checkpoint", tar_of(".metadata", "\x80\2}."), ".metadata",
       unsupported, "torch.distributed.checkpoint, and files beside a member"},
      {"a member of what is no archive", gguf(), "m", not_a_checkpoint,
       "is a GGUF file, which is no archive"},
      {"a member of what is compressed", "\x1f\x8b\x08\0\0\0\0\0\x02\xff"s + std::string(600, '\0'),
       "m", not_a_checkpoint, "is compressed with gzip"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    CHECK_FAILS(open(row.archive, row.member), row.code, row.words);
  }
}

TEST_CASE_FIXTURE(Fixture, "a member of a zip that is not read leaves the others as they are") {
  struct Field {
    std::size_t at;  // in the directory's entry
    std::uint64_t value;
  };
  for (const Field& field : {Field{8, 1}, Field{10, 12}, Field{10, 99}, Field{10, 256}}) {
    CAPTURE(field.value);
    test::ArchiveBuilder builder;
    builder.add_plain("front", gguf()).add_plain("bad", "no zip").add_plain("a/back", gguf());
    builder.finish();
    test::patch(builder.bytes(), builder.place(1).entry + field.at, field.value, 2);
    const std::string archive = text_of(builder);
    CHECK(open(archive, "front"));
    CHECK(open(archive, "a/back"));
    CHECK_FAILS(open(archive, "bad"), ErrorCode::unsupported,
                "the zip archive has this member compressed or encrypted, so it cannot be mapped; "
                "extract it (unzip FILE MEMBER) and open that");
    CHECK_FAILS(open(archive, "none"), ErrorCode::io, "no member \"none\"; it has");
  }
}

TEST_CASE_FIXTURE(Fixture, "two members of one name in a zip leave the others as they are") {
  test::ArchiveBuilder builder;
  for (const char* name : {"twin", "good", "twin", "Good"}) builder.add_plain(name, gguf());
  builder.finish();
  const std::string archive = text_of(builder);
  CHECK(open(archive, "good"));
  CHECK(open(archive, "Good"));
  CHECK_FAILS(open(archive, "twin"), ErrorCode::corrupt, "two members are named \"twin\"");
}

TEST_CASE_FIXTURE(Fixture, "a link is refused, also behind a file of its name, which it replaces") {
  for (const char type : {'1', '2'}) {
    CHECK_FAILS(open(test::tar({{.name = "other", .content = gguf()},
                                {.name = "m", .content = gguf()},
                                {.name = "m", .content = "", .type = type}}),
                     "m"),
                ErrorCode::unsupported, "as a link to another one; name that");
    CHECK(open(
        test::tar({{.name = "m", .content = "", .type = type}, {.name = "m", .content = gguf()}}),
        "m"));
  }
}

TEST_CASE_FIXTURE(Fixture, "a truncated member is refused") {
  const std::string whole = test::tar({{.name = "m", .content = gguf()}});
  for (std::size_t size = 512; size < 512 + gguf().size(); ++size)
    CHECK_FAILS(open(whole.substr(0, size), "m"), ErrorCode::corrupt,
                "the tar archive is truncated");
}

TEST_CASE_FIXTURE(Fixture, "staging a member is refused") {
  CHECK_FAILS(stage(member(test::tar({{.name = "m", .content = gguf()}}), "m"), {}),
              ErrorCode::unsupported, "is a member of an archive, and whole files are staged");
}

TEST_CASE_FIXTURE(Fixture,
                  "an archive with any byte changed has its member within its bounds, or none") {
  for (const std::string& whole :
       {test::tar({{.name = "pax", .content = "17 GNU.other.a=1\n", .type = 'x'},
                   {.name = "m", .content = gguf()}}),
        zip_of("m", gguf())})
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ change);
        const Result<Checkpoint> opened = open(changed, "m");
        if (!opened) continue;
        for (const NamedTensor& tensor : opened->tensors())
          CHECK(tensor.file_offset + tensor.view.bytes().size() <= changed.size());
      }
}
