// What servers answer: the fields of a header, and whether the body counts.
#include "remote/answer.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "remote/judgement.hpp"
#include "remote/s3.hpp"

using namespace weightmap;
using remote::Answer;
using remote::Ask;
using remote::ContentRange;
using remote::Judgement;
using remote::Outcome;
using remote::Pinned;

namespace {

Answer answer(std::initializer_list<const char*> lines) {
  Answer read;
  for (const char* line : lines) read.take(line);
  return read;
}

const Pinned version_a = {.version = {.size = 1000, .tag = "\"a\""}};

// 100 bytes from 200 of version_a were asked for.
Judgement judge_pinned(std::initializer_list<const char*> lines) {
  return judge(answer(lines), {.first = 200, .length = 100}, &version_a);
}

std::string failed(const Judgement& judgement) {
  return judgement.outcome == Outcome::failed ? judgement.error.message : "not failed";
}

}  // namespace

TEST_CASE("Content-Range is one range of a known size") {
  CHECK(ContentRange::parse("bytes 0-99/1234") == ContentRange{0, 100, 1234});
  CHECK(ContentRange::parse("bytes 1233-1233/1234") == ContentRange{1233, 1, 1234});
  CHECK(ContentRange::parse("bytes */1234") == ContentRange{0, 0, 1234});
  CHECK(ContentRange::parse("bytes 0-18446744073709551614/18446744073709551615") ==
        ContentRange{0, 18446744073709551615u, 18446744073709551615u});
}

TEST_CASE("any other Content-Range is refused") {
  for (const char* text : {"",
                           "bytes",
                           "bytes ",
                           "bytes 0-99",
                           "bytes 0-99/",
                           "bytes 0-99/*",
                           "bytes */*",
                           "bytes 0-1234/1234",
                           "bytes 9-8/1234",
                           "bytes -9/1234",
                           "bytes 0-/1234",
                           "bytes +0-9/1234",
                           "bytes 0--9/1234",
                           "bytes 0-9/1234 ",
                           "bytes  0-9/1234",
                           "Bytes 0-9/1234",
                           "0-9/1234",
                           "bytes 0-9/12x",
                           "bytes 0x0-9/1234",
                           "bytes 0-9/18446744073709551616",
                           "bytes 0-18446744073709551615/18446744073709551615",
                           "bytes 0-9/1234, bytes 0-9/1234"})
    CHECK_MESSAGE(!ContentRange::parse(text), text);
}

TEST_CASE("a checksum is base64 of 32 bytes, or says nothing") {
  constexpr const char* abc = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
  const StoreSum whole = remote::parse_checksum(abc, "");
  REQUIRE(whole.sha256);
  CHECK(whole.sha256->front() == std::byte{0xba});
  CHECK(whole.sha256->at(1) == std::byte{0x78});
  CHECK(whole.sha256->back() == std::byte{0xad});
  CHECK(remote::parse_checksum(abc, "FULL_OBJECT").sha256 == whole.sha256);
  for (const auto& [text, type] : {std::pair(std::string(abc) + "-2", ""), {abc, "COMPOSITE"}}) {
    CHECK_FALSE(remote::parse_checksum(text, type).sha256);
    CHECK(remote::parse_checksum(text, type).is_composite);
  }
  for (const std::string text : {"", "ungW", "*ngWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
                                 "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0A",
                                 "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=A"}) {
    CHECK_FALSE(remote::parse_checksum(text, "").sha256);
    CHECK_FALSE(remote::parse_checksum(text, "").is_composite);
  }
}

TEST_CASE("a header is taken line by line") {
  const Answer read = answer({"HTTP/1.1 206 Partial Content\r\n", "Content-Range: bytes 0-1/9\r\n",
                              "etag:\"x\"\r\n", "LAST-MODIFIED: \t now \r\n", "X-Other: 1\r\n",
                              "no field\r\n", "x-amz-version-id: v\r\n", "\r\n"});
  CHECK(read.status == 206);
  CHECK(read.content_range == "bytes 0-1/9");
  CHECK(read.etag == "\"x\"");
  CHECK(read.last_modified == "now");
  CHECK(read.version_id == "v");
  CHECK(read.content_encoding == "");
}

TEST_CASE("a preliminary answer is forgotten") {
  const Answer read =
      answer({"HTTP/1.1 100 Continue", "ETag: \"x\"", "", "HTTP/1.1 404 Not Found"});
  CHECK(read.status == 404);
  CHECK(read.etag == "");
}

TEST_CASE("a field that comes twice matches nothing") {
  const Answer read = answer({"HTTP/1.1 206 x", "Content-Range: bytes 200-299/1000",
                              "Content-Range: bytes 0-99/1000", "ETag: \"a\""});
  CHECK(read.content_range == "bytes 200-299/1000, bytes 0-99/1000");
  CHECK(judge(read, {.first = 200, .length = 100}, &version_a).outcome == Outcome::failed);
}

TEST_CASE("a status that is no number is none") {
  CHECK(answer({"HTTP/1.1 what"}).status == 0);
  CHECK(answer({"HTTP/1.1"}).status == 0);
  CHECK(answer({"HTTP/1.1 99999999999999999999 x"}).status == 0);
}

TEST_CASE("If-Match is for strong tags only") {
  CHECK(remote::is_strong_tag("\"a-1\""));
  for (const char* tag : {"", "\"", "a", "W/\"a\"", "\"a\", \"b\"", "\"a b\"", "\"a\r\nX: y\""})
    CHECK_FALSE(remote::is_strong_tag(tag));
}

TEST_CASE("a range is asked for by its ends, the last bytes by their number") {
  CHECK(Ask{.first = 0, .length = 1}.text() == "0-0");
  CHECK(Ask{.first = 18446744073709551614u, .length = 1}.text() ==
        "18446744073709551614-18446744073709551614");
  CHECK(Ask{.length = 500, .from_end = true}.text() == "-500");
  CHECK(Ask{.length = 500, .from_end = true}.within(200) == ByteRange{0, 200});
  CHECK(Ask{.length = 500, .from_end = true}.within(800) == ByteRange{300, 500});
  CHECK(Ask{.first = 100, .length = 500}.within(300) == ByteRange{100, 200});
  CHECK(Ask{.first = 100, .length = 500}.within(50) == ByteRange{100, 0});
}

TEST_CASE("the right answer's body counts") {
  const Judgement right = judge_pinned({"HTTP/1.1 206 x", "Content-Range: bytes 200-299/1000",
                                        "ETag: \"a\"", "Content-Length: 100"});
  CHECK(right.outcome == Outcome::body);
  CHECK(right.range == ByteRange{200, 100});
  CHECK(judge_pinned({"HTTP/1.1 206 x", "Content-Range: bytes 200-299/1000", "ETag: \"a\"",
                      "Content-Encoding: identity"})
            .outcome == Outcome::body);
}

namespace {

const std::string whole_range = "Content-Range: bytes 200-299/1000";
const std::string was_a = "changed: the file was version \"a\" of 1000 bytes, and is ";
const std::string no_range = "not one range of a known size";

struct Refusal {
  std::string status;
  std::vector<std::string> fields;
  std::string message;  // by which it is called
};

const std::vector<Refusal> refusals{
    {"200",
     {"ETag: \"a\"", "Content-Length: 1000"},
     "the server ignores ranges: it answers with the whole file (HTTP 200), which weightmap fetch "
     "URL FILE copies"},
    {"200",
     {"Content-Type: text/html; charset=utf-8"},
     "the server answers with a web page (HTML, HTTP 200), such as one to log in, and not with the "
     "file"},
    {"206",
     {whole_range, "ETag: \"a\"", "Content-Encoding: gzip"},
     "the server sends the file with Content-Encoding gzip"},
    {"206",
     {"Content-Range: bytes 201-300/1000", "ETag: \"a\""},
     "the server answers bytes=200-299 with Content-Range bytes 201-300/1000"},
    {"206",
     {"Content-Range: bytes 200-298/1000", "ETag: \"a\""},
     "the server answers bytes=200-299 with Content-Range bytes 200-298/1000"},
    {"206",
     {whole_range, "ETag: \"a\"", "Content-Length: 101"},
     "the server's Content-Length is 101, its Content-Range bytes 200-299/1000"},
    {"206",
     {"Content-Type: multipart/byteranges; boundary=x", "ETag: \"a\""},
     "the server's Content-Range is none, " + no_range},
    // Another version, by tag, size or both.
    {"206", {whole_range, "ETag: \"b\""}, was_a + "version \"b\" of 1000 bytes now"},
    {"206",
     {"Content-Range: bytes 200-299/1001", "ETag: \"a\""},
     was_a + "version \"a\" of 1001 bytes now"},
    {"206", {whole_range}, was_a + "version none of 1000 bytes now"},
    {"412", {"ETag: \"b\""}, was_a + "version \"b\" now (HTTP 412)"},
    {"412", {}, was_a + "another one now (HTTP 412)"},
    {"404", {}, was_a + "gone (HTTP 404)"},
    {"416", {"Content-Range: bytes */50", "ETag: \"b\""}, was_a + "version \"b\" of 50 bytes now"},
    // What does not print is not shown.
    {"206", {whole_range, "ETag: \"\x1B[2J\""}, was_a + "version not printable of 1000 bytes now"},
    {"206",
     {"Content-Range: " + std::string(5000, 'x'), "ETag: \"a\""},
     "the server's Content-Range is " + std::string(100, 'x') + "..., " + no_range},
    // What another request would meet, too.
    {"302", {}, "the store redirects without a location (HTTP 302)"},
    {"416", {}, "the server has no range bytes=200-299 (HTTP 416)"},
    {"501", {}, "the server answers HTTP 501"},
    {"204", {}, "the server answers HTTP 204"}};

}  // namespace

TEST_CASE("an answer that is not the range of the version is refused") {
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.message);
    Answer read;
    read.take("HTTP/1.1 " + refusal.status + " x");
    for (const std::string& field : refusal.fields) read.take(field);
    CHECK(failed(judge(read, {.first = 200, .length = 100}, &version_a)) == refusal.message);
  }
}

TEST_CASE("a whole file may be copied by one request, and a web page may not") {
  const Judgement whole = judge_pinned({"HTTP/1.1 200 OK", "ETag: \"a\"", "Content-Length: 1000"});
  CHECK(whole.ignores_ranges);
  CHECK(whole.error.code == ErrorCode::unsupported);
  CHECK_FALSE(judge_pinned({"HTTP/1.1 200 OK", "Content-Type: text/html"}).ignores_ranges);
}

TEST_CASE("without a tag the size and the time of change are compared") {
  const Pinned untagged = {.version = {.size = 1000}, .last_modified = "then"};
  const Ask ask = {.first = 200, .length = 100};
  CHECK(
      judge(answer({"HTTP/1.1 206 x", "Content-Range: bytes 200-299/1000", "Last-Modified: then"}),
            ask, &untagged)
          .outcome == Outcome::body);
  CHECK(judge(answer({"HTTP/1.1 206 x", "Content-Range: bytes 200-299/1000", "Last-Modified: now"}),
              ask, &untagged)
            .outcome == Outcome::failed);
}

TEST_CASE("what another request may not meet is asked again") {
  for (const char* status : {"HTTP/1.1 408 x", "HTTP/1.1 429 x", "HTTP/1.1 500 x", "HTTP/1.1 502 x",
                             "HTTP/1.1 503 x", "HTTP/1.1 504 x"})
    CHECK(judge_pinned({status}).outcome == Outcome::again);
  CHECK(judge_pinned({"HTTP/1.1 503 x"}).why == "HTTP 503");
  CHECK(judge_pinned({"HTTP/1.1 400 x"}).outcome == Outcome::denied);
  CHECK(judge_pinned({"HTTP/1.1 401 x"}).outcome == Outcome::denied);
  CHECK(judge_pinned({"HTTP/1.1 403 x"}).outcome == Outcome::denied);
  CHECK(judge_pinned({"HTTP/1.1 302 x", "Location: /y"}).outcome == Outcome::moved);
}

TEST_CASE("the first answer says the version") {
  const Judgement first = judge(answer({"HTTP/1.1 206 x", "Content-Range: bytes 0-9/10",
                                        "ETag: \"a\"", "x-amz-version-id: v1"}),
                                {.length = 100}, nullptr);
  CHECK(first.outcome == Outcome::body);
  CHECK(first.range == ByteRange{0, 10});
  CHECK(first.found.version == RemoteVersion{.size = 10, .tag = "\"a\"", .id = "v1"});
  const Judgement unversioned =
      judge(answer({"HTTP/1.1 206 x", "Content-Range: bytes 0-9/10", "x-amz-version-id: null"}),
            {.length = 100}, nullptr);
  CHECK(unversioned.found.version == RemoteVersion{.size = 10});
}

TEST_CASE("a file that is missing at first is missing, not changed") {
  const Judgement missing = judge(answer({"HTTP/1.1 404 x"}), {.length = 100}, nullptr);
  CHECK(failed(missing) == "the store has no such file (HTTP 404)");
  CHECK(missing.error.os_error == ENOENT);
}

TEST_CASE("an empty file has no range") {
  for (const auto& lines : {answer({"HTTP/1.1 416 x", "Content-Range: bytes */0"}),
                            answer({"HTTP/1.1 200 OK", "Content-Length: 0"})}) {
    CHECK(judge(lines, {.length = 100}, nullptr).outcome == Outcome::empty);
    CHECK(judge(lines, {.length = 100, .from_end = true}, nullptr).outcome == Outcome::empty);
    CHECK(judge(lines, {.first = 200, .length = 100}, &version_a).outcome == Outcome::failed);
  }
}

TEST_CASE("a server need not know ranges from the end") {
  const Ask last = {.length = 100, .from_end = true};
  CHECK(judge(answer({"HTTP/1.1 200 OK", "Content-Length: 9"}), last, nullptr).outcome ==
        Outcome::no_suffix);
  CHECK(judge(answer({"HTTP/1.1 501 x"}), last, nullptr).outcome == Outcome::no_suffix);
  CHECK(judge(answer({"HTTP/1.1 404 x"}), last, nullptr).outcome == Outcome::failed);
}
