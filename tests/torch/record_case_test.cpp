// Archives where a record is there in another case only: readers differ in whether it counts, since
// torch looks names up without case.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

// {"w": torch.zeros(1)}
const std::string one_tensor =
    std::string(test::raw("\x80\x02}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(("
                          "X\7\0\0\0storagectorch\nFloatStorage\n"
                          "X\1\0\0\0"
                          "0X\3\0\0\0cpuK\1tQK\0K\1\x85K\1\x85\x89"
                          "ccollections\nOrderedDict\n)RtRu."));

// Opens an archive with this record called otherwise.
Result<Checkpoint> open_with(std::string_view record, const std::string& other) {
  test::ArchiveBuilder builder;
  const auto add = [&](const std::string& name, const std::string& content) {
    builder.add("archive/" + (name == record ? other : name), content);
  };
  add("data.pkl", one_tensor);
  add(".format_version", "1");
  add(".storage_alignment", "64");
  add("byteorder", "little");
  add("data/0", std::string(4, '\0'));
  add(record == ".data/version" ? ".data/version" : "version", "3\n");
  builder.finish();
  const test::TemporaryFolder folder;
  return Checkpoint::open(folder.write("model.pt", std::span<const std::byte>(builder.bytes())));
}

TEST_CASE("opens the archive with every record as it is called") {
  const Result<Checkpoint> opened = open_with("data.pkl", "data.pkl");
  REQUIRE_OK(opened);
  CHECK(opened->tensors().size() == 1);
  REQUIRE_OK(open_with(".data/version", ".data/version"));
}

TEST_CASE("refuses a record that is there in another case only, by both names") {
  for (const auto& [name, other] : {std::pair{"data.pkl", "Data.pkl"},
                                    {"data.pkl", "DATA.PKL"},
                                    {"version", "Version"},
                                    {".data/version", ".data/VERSION"},
                                    {".format_version", ".Format_version"},
                                    {".storage_alignment", ".storage_Alignment"},
                                    {"byteorder", "BYTEORDER"}}) {
    const Result<Checkpoint> opened = open_with(name, other);
    CHECK_FAILS(opened, ErrorCode::corrupt,
                "record \"archive/" + std::string(other) + "\" is named like " + name +
                    " but for case; readers differ in whether it counts");
    CHECK(opened.error().file_offset != Error::no_offset);
  }
}

TEST_CASE("finds no storage in another case") {
  CHECK_FAILS(open_with("data/0", "Data/0"), ErrorCode::corrupt, "data/0");
}

}  // namespace
}  // namespace weightmap
