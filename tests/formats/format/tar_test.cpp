// Members of tar archives, by headers of every kind.
#include "runtime/formats/format/tar.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/tar_builder.hpp"

using namespace weightmap;
using namespace std::string_literals;
using namespace weightmap::test;

namespace {

// "name=content", one for each.
Result<std::vector<std::string>> members_of(const std::string& archive) {
  const bytes::MemorySource source(std::as_bytes(std::span(archive)));
  format::TarReader reader(source);
  std::vector<std::string> found;
  for (;;) {
    Result<std::optional<format::TarMember>> member = reader.next();
    if (!member) return tl::unexpected(member.error());
    if (!*member) return found;
    if ((*member)->is_link) continue;
    found.push_back((*member)->name + "=" + archive.substr((*member)->offset, (*member)->size));
  }
}

using Found = std::vector<std::string>;

Found members(const std::string& archive) { return members_of(archive).value(); }

}  // namespace

TEST_CASE("a tar is known by the checksum of its first header, not by its magic") {
  const std::string whole = tar({{.name = "a", .content = "x"}});
  const auto begins = [](const std::string& text) {
    return format::begins_tar(std::as_bytes(std::span(text)));
  };
  CHECK(begins(whole));
  CHECK(begins(tar({{.name = "a", .content = "x", .magic = ""}})));
  CHECK(!begins(whole.substr(0, 511)));
  CHECK(!begins(std::string(512, '\0')));
  for (std::size_t i = 0; i < 512; ++i) {
    CAPTURE(i);
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    // Behind the digits of the sum is a byte that no reader looks at.
    if (i < 154 || i > 155) CHECK(!begins(changed));
  }
}

TEST_CASE("members are those with content, folders and links are not") {
  CHECK(members(tar({{.name = "d/", .content = "", .type = '5'},
                     {.name = "d/a", .content = "one"},
                     {.name = "link", .content = "", .type = '2'},
                     {.name = "hard", .content = "", .type = '1', .size = octal(3)},
                     {.name = "old/", .content = "", .type = '\0', .magic = ""},
                     {.name = "old/b", .content = std::string(513, 'b'), .type = '\0', .magic = ""},
                     {.name = "empty", .content = ""},
                     {.name = "odd", .content = "two", .type = '9'}})) ==
        Found{"d/a=one", "old/b=" + std::string(513, 'b'), "empty=", "odd=two"});
}

TEST_CASE("names come from the prefix, from GNU's long names, and from pax headers") {
  const std::string longer(300, 'n');
  CHECK(members(tar({{.name = "a", .content = "1", .prefix = "some/folder"},
                     {.name = "././@LongLink", .content = longer + '\0', .type = 'L'},
                     {.name = "cut", .content = "2"},
                     {.name = "pax", .content = "13 path=p/q\n\n", .type = 'x'},
                     {.name = "cut", .content = "3"},
                     {.name = "b", .content = "4"}})) ==
        Found{"some/folder/a=1", longer + "=2", "p/q\n=3", "b=4"});
}

TEST_CASE("a size may be in a pax header, for one member or for all, or binary") {
  const std::string four = "10 size=4\n";
  CHECK(members(tar({{.name = "pax", .content = four, .type = 'x'},
                     {.name = "a", .content = "abcd", .size = octal(0)},
                     {.name = "b", .content = "xyz"}})) == Found{"a=abcd", "b=xyz"});
  CHECK(members(tar({{.name = "all", .content = four, .type = 'g'},
                     {.name = "a", .content = "abcd", .size = octal(0)},
                     {.name = "b", .content = "efgh", .size = octal(0)}})) ==
        Found{"a=abcd", "b=efgh"});
  const std::string binary = "\x80"s + std::string(10, '\0') + "\4";
  CHECK(members(tar({{.name = "a", .content = "abcd", .size = binary}})) == Found{"a=abcd"});
}

TEST_CASE("the map of a sparse member is not its content") {
  std::string map(512, '\0');
  map[504] = 1;
  const std::string archive =
      header({.name = "s", .content = "abc", .type = 'S', .map_follows = 1}) + map +
      std::string(512, '\0') + block("abc") + tar({{.name = "b", .content = "x"}});
  CHECK(members(archive) == Found{"s=abc", "b=x"});
}

TEST_CASE("the end may be missing, with the rest of the last block") {
  const std::string whole = tar({{.name = "a", .content = "abc"}});
  CHECK(members(whole.substr(0, 1024)) == Found{"a=abc"});
  CHECK(members(whole.substr(0, 515)) == Found{"a=abc"});
  CHECK(members(whole.substr(0, 1024 + 100)) == Found{"a=abc"});
}

TEST_CASE("refuses members and headers that are cut off, too large, or without their numbers") {
  using enum ErrorCode;
  const std::string two = tar({{.name = "a", .content = "abc"}, {.name = "b", .content = "d"}});
  const std::string huge = "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"s;
  const auto pax = [](const std::string& text) {
    return members_of(tar({{.name = "p", .content = text, .type = 'x'}}));
  };
  CHECK_FAILS(members_of(tar({{.name = "a", .content = "abc"}}).substr(0, 514)), corrupt,
              "the tar archive is truncated: a member states 3 bytes, and only 2 follow");
  CHECK_FAILS(members_of(two.substr(0, 1024 + 300)), corrupt,
              "is cut off or its checksum is wrong");
  CHECK_FAILS(members_of(tar({{.name = "a", .content = "abc", .size = huge}})), corrupt,
              "the tar archive is truncated: a member states 18446744073709551615 bytes");
  for (const char* text : {"path=x\n", "99 path=x\n", "2 \n", "1 "}) {
    CAPTURE(text);
    CHECK_FAILS(pax(text), corrupt,
                "a pax header of the tar archive has a line without its length");
  }
  CHECK_FAILS(pax("10 size=x\n"), corrupt, "states a size that is no number");
  CHECK_FAILS(pax(std::string((1 << 20) + 1, ' ')), limit_exceeded,
              "has 1048577 bytes of text, the limit is 1048576");
}
