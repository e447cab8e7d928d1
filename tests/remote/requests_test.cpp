// Requests: where they go and with what, when they are made again, how many at a time; and sources
// that need no server.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remote/pace.hpp"
#include "remote/place.hpp"
#include "remote/s3.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/remote.hpp"

using namespace weightmap;
using namespace std::chrono_literals;
using remote::Ask;
using remote::backoff;
using remote::Pace;
using remote::Pinned;
using remote::Place;
using remote::RequestHead;
using remote::S3Access;
using remote::S3Object;
using remote::Url;

namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

constexpr Ask first_ten = {.first = 0, .length = 10};
const Pinned version_a = {.version = {.size = 1000, .tag = "\"a\"", .id = "v+1"}};

Place place(const std::string& url, std::vector<std::string> headers = {},
            remote::Signer signer = {}, std::optional<S3Access> s3 = {}) {
  return {url, Url::parse(url).value(), std::move(headers), std::move(signer), std::move(s3)};
}

bool has(const RequestHead& head, std::string_view header) {
  return std::find(head.headers.begin(), head.headers.end(), header) != head.headers.end();
}

S3Access access() {
  return {.key_id = "id",
          .secret = "secret",
          .session_token = "token",
          .region = "eu-1",
          .endpoint = ""};
}

std::string s3_url(const S3Access& by, const std::string& text) {
  return by.url_of(S3Object::parse(text).value()).value().text();
}

// Reads ranges of `step` bytes into one buffer.
class Reader final : public RangeReader {
 public:
  Reader(std::size_t size, std::size_t step) : bytes(size), step_(step) {}
  std::optional<RangeRequest> next() override {
    if (at_ >= bytes.size()) return std::nullopt;
    const std::size_t length = std::min(step_, bytes.size() - at_);
    const RangeRequest request{at_, std::span(bytes).subspan(at_, length)};
    at_ += length;
    return request;
  }
  Result<void> arrived(const RangeRequest&) override {
    if (on_arrival) on_arrival();
    return {};
  }
  bool goes_on(std::uint64_t) override { return wants_more; }
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

  std::vector<std::byte> bytes;
  std::function<void()> on_arrival;
  bool wants_more = true;

 private:
  std::size_t step_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("waits double up to ten seconds, and half of each is random") {
  CHECK(backoff(1, 0, 0s) == 50ms);
  CHECK(backoff(1, 0xFFFFFFFF, 0s) == 99ms);
  CHECK(backoff(2, 0, 0s) == 100ms);
  CHECK(backoff(4, 0x80000000, 0s) == 600ms);
  CHECK(backoff(7, 0, 0s) == 3200ms);
  CHECK(backoff(8, 0, 0s) == 5000ms);
  CHECK(backoff(4'000'000'000, 0xFFFFFFFF, 0s) == 9999ms);
}

TEST_CASE("Retry-After is obeyed up to a minute") {
  CHECK(backoff(1, 0, 2s) == 2000ms);
  CHECK(backoff(8, 0, 2s) == 5000ms);
  CHECK(backoff(1, 0, 60s) == 60000ms);
  CHECK(backoff(1, 0, std::chrono::seconds::max()) == 60000ms);
}

TEST_CASE("the number of requests doubles while the rate grows") {
  Pace pace(0);
  CHECK(pace.limit() == 16);
  pace.note(999ms, 1'000'000);
  CHECK(pace.limit() == 16);
  pace.note(1000ms, 1'000'000);
  CHECK(pace.limit() == 32);
  pace.note(2000ms, 2'200'000);  // 1.2 times as fast
  CHECK(pace.limit() == 64);
  pace.note(3000ms, 9'000'000);
  CHECK(pace.limit() == 64);
}

TEST_CASE("the number of requests stays where it does not help") {
  Pace pace(0);
  pace.note(1000ms, 1'000'000);
  pace.note(2000ms, 2'100'000);  // 1.1 times as fast
  CHECK(pace.limit() == 32);
  pace.note(3000ms, 9'000'000);
  CHECK(pace.limit() == 32);
}

TEST_CASE("the number of requests stays where the caller fixed it") {
  Pace pace(3);
  pace.note(5000ms, 1'000'000);
  CHECK(pace.limit() == 3);
}

TEST_CASE("a request has its range, its version, and what the user sends") {
  const RequestHead head = place("https://u:p@h/x?q", {"X-Mine: 1"}).request(first_ten, &version_a);
  CHECK(head.url == "https://h/x?q");
  CHECK(head.user == "u");
  CHECK(head.password == "p");
  CHECK(head.headers == std::vector<std::string>{"Accept-Encoding: identity", "Range: bytes=0-9",
                                                 "If-Match: \"a\"", "X-Mine: 1"});
}

TEST_CASE("a weak tag, or one of tricks, is not sent") {
  for (const char* tag : {"W/\"a\"", "", "\"a\r\nX: y\""}) {
    const Pinned pinned = {.version = {.size = 1000, .tag = tag}};
    CHECK(place("https://h/x").request(first_ten, &pinned).headers.size() == 2);
  }
}

TEST_CASE("credentials are for the URL's own host") {
  Place store = place("https://u:p@h/x", {"Authorization: Bearer secret"});
  REQUIRE(store.follow(0, "https://other/y"));
  const RequestHead there = store.request(first_ten, nullptr);
  CHECK(there.url == "https://other/y");
  CHECK(there.user == "");
  CHECK(there.password == "");
  CHECK_FALSE(has(there, "Authorization: Bearer secret"));
}

TEST_CASE("they are sent again on the own host") {
  Place store = place("https://h/x", {"Authorization: Bearer secret"});
  REQUIRE(store.follow(0, "https://h/y"));
  CHECK(has(store.request(first_ten, nullptr), "Authorization: Bearer secret"));
}

TEST_CASE("the target of a redirect is kept until it refuses") {
  Place store = place("https://h/x");
  REQUIRE(store.follow(0, "https://other/y"));
  CHECK(store.generation() == 1);
  REQUIRE(store.follow(0, "https://third/z"));  // of a request from before
  CHECK(store.request(first_ten, nullptr).url == "https://other/y");
  CHECK(store.renew(1).value());
  CHECK(store.request(first_ten, nullptr).url == "https://h/x");
  CHECK_FALSE(store.renew(2).value());
}

TEST_CASE("the signer is asked once, and once more after each refusal") {
  std::vector<std::string> calls;
  Place store = place("https://h/x", {}, [&](const std::string& url, bool again) {
    calls.push_back(url + (again ? " again" : ""));
    return Result<std::string>("https://h/x?sig=" + std::to_string(calls.size()));
  });
  REQUIRE(store.prepare());
  REQUIRE(store.prepare());
  CHECK(store.request(first_ten, nullptr).url == "https://h/x?sig=1");
  CHECK(store.renew(0).value());
  CHECK(store.renew(0).value());  // a request of before
  CHECK(store.request(first_ten, nullptr).url == "https://h/x?sig=2");
  CHECK_FALSE(store.renew(1).value());  // the new one is refused as well
  store.answered(1);
  CHECK(store.renew(1).value());  // it served for a while
  CHECK(calls == std::vector<std::string>{"https://h/x", "https://h/x again", "https://h/x again"});
}

TEST_CASE("a signer's error and a signer's nonsense are errors") {
  Place fails = place("https://h/x", {}, [](const std::string&, bool) -> Result<std::string> {
    return failure(ErrorCode::io, "no token");
  });
  CHECK_FAILS(fails.prepare(), ErrorCode::io, "no token");
  Place other = place("https://h/x", {},
                      [](const std::string&, bool) { return Result<std::string>("file:///x"); });
  CHECK_FAILS(other.prepare(), ErrorCode::invalid_argument, "the signer's URL");
}

TEST_CASE("a refusal names what was tried, and no value") {
  const auto signer = [](const std::string&, bool) { return Result<std::string>("https://h/x"); };
  CHECK(place("https://h/x", {}, signer).credentials() == "the signer was asked again");
  CHECK(place("https://h/x").credentials() ==
        "no credentials were given: a header (--header), or a presigned URL");
  CHECK(
      place("https://h/x?a=b&X-Amz-Signature=secret").credentials() ==
      "the signature in the URL has expired, or is of another file: get a new URL; a fetch goes on "
      "where it was");
  CHECK(place("https://u:secret@h/x", {"Authorization: secret", "X: secret"}).credentials() ==
        "sent were the headers Authorization, X, the URL's user and password");
  CHECK(place("https://h/x", {}, {}, access()).credentials() ==
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY were used, with AWS_SESSION_TOKEN");
  CHECK(place("https://h/x", {}, {}, S3Access{}).credentials() ==
        "no credentials were given: AWS_ACCESS_KEY_ID is not set");
}

TEST_CASE("S3's requests are signed, and of the version") {
  const RequestHead head = place("https://h/x", {}, {}, access()).request(first_ten, &version_a);
  CHECK(head.url == "https://h/x?versionId=v%2B1");
  CHECK(head.sigv4 == "aws:amz:eu-1:s3");
  CHECK(head.user == "id");
  CHECK(head.password == "secret");
  CHECK(has(head, "x-amz-content-sha256: UNSIGNED-PAYLOAD"));
  CHECK(has(head, "x-amz-security-token: token"));
}

TEST_CASE("S3's checksum is asked for with the header alone, of the version and no range of it") {
  const RequestHead head = place("https://h/x", {}, {}, access()).request_sum(version_a);
  CHECK_FALSE(head.wants_body);
  CHECK(head.url == "https://h/x?versionId=v%2B1");
  CHECK(has(head, "x-amz-checksum-mode: ENABLED"));
  CHECK(head.sigv4 == "aws:amz:eu-1:s3");
  for (const std::string& header : head.headers) CHECK_FALSE(header.starts_with("Range"));
}

TEST_CASE("without keys they are not signed") {
  const RequestHead head = place("https://h/x", {}, {}, S3Access{}).request(first_ten, nullptr);
  CHECK(head.sigv4 == "");
  CHECK(head.headers.size() == 2);
}

TEST_CASE("keys of S3 are percent-encoded") {
  CHECK(s3_url(access(), "s3://bucket/a b+c%20/\xC3\xBC?.pt") ==
        "https://bucket.s3.eu-1.amazonaws.com/a%20b%2Bc%2520/%C3%BC%3F.pt");
}

TEST_CASE("a bucket with dots, and an own endpoint, are asked by path") {
  CHECK(s3_url(access(), "s3://my.bucket/k") == "https://s3.eu-1.amazonaws.com/my.bucket/k");
  S3Access own = access();
  own.endpoint = "http://u:p@127.0.0.1:9000/s3/?x";
  CHECK(s3_url(own, "s3://bucket/a/b") == "http://127.0.0.1:9000/s3/bucket/a/b");
  own.endpoint = "file:///x";
  CHECK_FAILS(own.url_of({"b", "k"}), ErrorCode::invalid_argument, "AWS_ENDPOINT_URL");
}

TEST_CASE("s3:// needs a bucket and a key") {
  for (const char* text : {"s3://", "s3://b", "s3://b/", "s3:///k", "s3://a@evil/k", "s3://a:1/k",
                           "s3://.b/k", "s3://b/k\n"})
    CHECK_FAILS(S3Object::parse(text), ErrorCode::invalid_argument, "s3://bucket/key is wanted");
}

TEST_CASE("an object's name and siblings") {
  const S3Object object = S3Object::parse("s3://b/dir/m\xC3\xBC.pt").value();
  CHECK(object.name() == "s3://b/dir/m%C3%BC.pt");
  CHECK(object.sibling("n/o").value().key == "dir/n/o");
  CHECK_FAILS(object.sibling("../o"), ErrorCode::invalid_argument, "leads out of its folder");
}

TEST_CASE("the variables of AWS") {
  const Variable id("AWS_ACCESS_KEY_ID", "id");
  CHECK_FAILS(S3Access::from_environment(), ErrorCode::invalid_argument, "only one is set");
  const Variable secret("AWS_SECRET_ACCESS_KEY", "secret");
  CHECK(S3Access::from_environment().value().region == "us-east-1");
  const Variable fallback("AWS_DEFAULT_REGION", "eu-2");
  CHECK(S3Access::from_environment().value().region == "eu-2");
  {
    const Variable region("AWS_REGION", "eu-3");
    CHECK(S3Access::from_environment().value().region == "eu-3");
  }
  const Variable region("AWS_REGION", "x.evil/");
  CHECK_FAILS(S3Access::from_environment(), ErrorCode::invalid_argument, "AWS_REGION");
}

TEST_CASE("open_url refuses what cannot be used, without its secrets") {
  const auto refusal = [](const RemoteOptions& options) {
    const auto source = open_url("https://h/x", options);
    return source ? "opened" : source.error().message;
  };
  CHECK(refusal({.headers = {"A: 1", "secret"}}) == "header 1 is not \"Name: value\"");
  CHECK(refusal({.headers = {": secret"}}) == "header 0 is not \"Name: value\"");
  CHECK(refusal({.headers = {"A: secret\r\nB: 1"}}) == "header 0 is not \"Name: value\"");
  CHECK(refusal({.headers = {"RANGE: bytes=0-1"}}) == "the header range is the source's own");
  CHECK(refusal({}) == "opened");
}

// Takes connections, and never answers.
class SilentServer {
 public:
  SilentServer() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(socket_, 16) == 0);
    socklen_t size = sizeof address;
    REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  ~SilentServer() { close(socket_); }
  const std::string& url() const { return url_; }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string url_;
};

TEST_CASE("every request obeys goes_on and the deadline, those to the hub, too") {
  const SilentServer server;
  const Variable endpoint("HF_ENDPOINT", server.url().c_str());
  const RemoteOptions ends = {.stall = 0ms, .goes_on = [] { return false; }};
  const RemoteOptions late = {.deadline = 1ms, .stall = 0ms};
  CHECK_FAILS((*hub_client(ends))->get("/x"), ErrorCode::cancelled, "cancelled");
  CHECK_FAILS((*hub_client(late))->get("/x"), ErrorCode::io, "the deadline has passed");
  const RemoteOptions patient = {
      .retries = 0, .deadline = 100ms, .stall = 0ms};  // none, not at once
  CHECK_FAILS((*hub_client(patient))->get("/x"), ErrorCode::io, "the deadline has passed");
  for (const std::string& url : {server.url() + "/x.pt", std::string("hf://org/name")}) {
    CHECK_FAILS((*open_url(url, ends))->identify({}, {}), ErrorCode::cancelled, "cancelled");
    CHECK_FAILS((*open_url(url, late))->identify({}, {}), ErrorCode::io, "the deadline ");
    const RemoteOptions over = {.until = std::chrono::steady_clock::now(), .stall = 0ms};
    CHECK_FAILS((*open_url(url, over))->identify({}, {}), ErrorCode::io, "the deadline has passed");
  }
}

TEST_CASE("a name with %00 is that of no other file") {
  const test::TemporaryFolder folder;
  const std::string url = "file://" + folder.write("x.pt", "0123").string() + "%00.other";
  CHECK_FAILS((*open_url(url))->identify({}, {}), ErrorCode::invalid_argument,
              "%00 is in no name of a file");
}

TEST_CASE("what tells a file from others is all of its URL but signatures and tokens") {
  const auto identity = [](const std::string& url) { return (*open_url(url))->identity(); };
  CHECK(identity("http://u:p@h/get?model=a&X-Amz-Signature=1&Expires=2&versionId=3&sig=4") ==
        "http://h:80/get&model=a&versionId=3");
  CHECK(identity("http://h/get?model=a") != identity("http://h/get?model=b"));
  CHECK(identity("http://h:81/x") != identity("http://h/x"));
  CHECK(identity("https://h/x") != identity("http://h/x"));
}

TEST_CASE("a store that cannot be reached is asked once") {
  std::string url;
  {
    const SilentServer server;
    url = server.url();
  }
  const auto source = open_url(url + "/x.pt");
  CHECK_FAILS((*source)->identify({}, {}), ErrorCode::io, "connect to server");
  CHECK((*source)->counts().requests == 1);
  CHECK((*source)->counts().retries == 0);
  const Variable endpoint("HF_ENDPOINT", url.c_str());
  CHECK_FAILS((*hub_client())->get("/x"), ErrorCode::io, "connect to server");
}

TEST_CASE("a source has a name before anything is asked") {
  CHECK((*open_url("s3://bucket/dir/a b.pt"))->name() == "s3://bucket/dir/a b.pt");
  CHECK((*(*open_url("s3://bucket/dir/a"))->sibling("b"))->name() == "s3://bucket/dir/b");
  CHECK((*(*open_url("https://h/a?q"))->sibling("b"))->name() == "https://h/b");
}

TEST_CASE("a source is identified before it is read") {
  const auto source = open_url("https://h/x");
  REQUIRE(source);
  Reader reader(1, 1);
  CHECK_FAILS((*source)->read(reader), ErrorCode::invalid_argument,
              "read() comes after identify()");
}

TEST_CASE("a file is read through its URL") {
  const test::TemporaryFolder folder;
  folder.write("a b.pt", "0123456789");
  folder.write("other", "xyz");
  const auto source = open_url("file://" + folder.path().string() + "/a%20b.pt");
  REQUIRE(source);
  std::array<std::byte, 4> head{};
  std::array<std::byte, 20> tail{};
  const auto version = (*source)->identify(head, tail);
  REQUIRE(version);
  CHECK(version->size == 10);
  CHECK(std::string(reinterpret_cast<const char*>(head.data()), 4) == "0123");
  CHECK(std::string(reinterpret_cast<const char*>(tail.data()) + 10, 10) == "0123456789");
  Reader reader(10, 3);
  REQUIRE((*source)->read(reader));
  CHECK(reader.text() == "0123456789");

  const auto other = (*source)->sibling("other");
  REQUIRE(other);
  CHECK((*other)->identify({}, {}).value().size == 3);
}

TEST_CASE("a file that changes between two ranges is a change") {
  const test::TemporaryFolder folder;
  const auto path = folder.write("x", "0123456789");
  const auto source = open_url("file://" + path.string());
  REQUIRE(source);
  REQUIRE((*source)->identify({}, {}));
  Reader reader(10, 5);
  reader.on_arrival = [&] { folder.write("x", "0123456789ABC"); };
  CHECK_FAILS((*source)->read(reader), ErrorCode::io, "changed: the file was version");
}

TEST_CASE("a range beyond the file, and a reader that stops") {
  const test::TemporaryFolder folder;
  const auto source = open_url("file://" + folder.write("x", "0123").string());
  REQUIRE(source);
  REQUIRE((*source)->identify({}, {}));
  Reader beyond(5, 5);
  CHECK_FAILS((*source)->read(beyond), ErrorCode::invalid_argument, "not within the file");
  Reader stops(4, 4);
  stops.wants_more = false;
  CHECK_FAILS((*source)->read(stops), ErrorCode::cancelled, "cancelled");
}

TEST_CASE("what is no regular file is not read") {
  const test::TemporaryFolder folder;
  const auto missing = open_url("file://" + (folder.path() / "x").string());
  const auto error = (*missing)->identify({}, {});
  CHECK_FAILS(error, ErrorCode::io, "No such file or directory");
  CHECK(error.error().os_error == ENOENT);
  CHECK(error.error().file == "file://" + folder.path().string() + "/x");
  CHECK_FAILS((*open_url("file://" + folder.path().string()))->identify({}, {}), ErrorCode::io,
              "not a regular file");
}
