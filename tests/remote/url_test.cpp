// URLs: what they are taken apart into, what is shown of them, where redirects and siblings lead.
#include "remote/url.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/failures.hpp"
#include "weightmap/remote.hpp"

using namespace weightmap;
using remote::Url;

namespace {

Url url(const std::string& text) {
  auto parsed = Url::parse(text);
  REQUIRE_MESSAGE(parsed.has_value(), text);
  return *parsed;
}

std::string target(const std::string& from, const std::string& location) {
  const auto there = url(from).redirected(location);
  return there ? there->text() : to_string(there.error());
}

std::string sibling(const std::string& of, const std::string& relative) {
  const auto other = url(of).sibling(relative);
  return other ? other->text() : to_string(other.error());
}

}  // namespace

TEST_CASE("a URL has its parts") {
  const Url all = url("HTTPS://us%40er:pa%3Ass@Host.example:8443/a/b%20c.pt?x=1&y=2#part");
  CHECK(all.scheme == "https");
  CHECK(all.user == "us@er");
  CHECK(all.password == "pa:ss");
  CHECK(all.host == "host.example");
  CHECK(all.port == "8443");
  CHECK(all.path == "/a/b%20c.pt");
  CHECK(all.query == "x=1&y=2");
  CHECK(all.text() == "https://host.example:8443/a/b%20c.pt?x=1&y=2");
}

TEST_CASE("messages get no query, user or password") {
  CHECK(url("https://user:secret@host/model.pt?X-Amz-Signature=secret").name() ==
        "https://host/model.pt");
  const auto source = open_url("https://user:secret@host/model.pt?token=secret");
  REQUIRE(source);
  CHECK((*source)->name() == "https://host/model.pt");
}

TEST_CASE("the port of a scheme is known, and is not spelled out") {
  CHECK(url("http://h/x").port == "80");
  CHECK(url("https://h/x").port == "443");
  CHECK(url("https://h:443/x").text() == "https://h/x");
  CHECK(url("http://h:443/x").text() == "http://h:443/x");
  CHECK(url("http://[::1]:8000/x").text() == "http://[::1]:8000/x");
}

TEST_CASE("the origin is scheme, host and port") {
  CHECK(url("https://h/x").has_origin_of(url("https://H:443/y?z")));
  CHECK_FALSE(url("https://h/x").has_origin_of(url("http://h:443/x")));
  CHECK_FALSE(url("https://h/x").has_origin_of(url("https://h:8443/x")));
  CHECK_FALSE(url("https://h/x").has_origin_of(url("https://h.evil/x")));
}

TEST_CASE("dot segments are gone, and other bytes than ASCII encoded") {
  CHECK(url("https://h/a/../b/./c").path == "/b/c");
  CHECK(url("https://h/m\xC3\xBC.pt").path == "/m%C3%BC.pt");
  CHECK(url("https://h").path == "/");
}

TEST_CASE("a file's URL is of this machine") {
  CHECK(url("file:///a/b%20c").path == "/a/b%20c");
  CHECK(url("file:///a/b").name() == "file:///a/b");
  CHECK(url("file://localhost/a").name() == "file:///a");
  CHECK_FAILS(Url::parse("file://other/a"), ErrorCode::invalid_argument, "not a URL");
}

TEST_CASE("what is no URL to read is refused") {
  for (const char* text :
       {"", "model.pt", "ftp://h/x", "https://", "https://h:99999/x", "https://h/a b",
        "https://h/a\nb", "https://h/a\x7F", "https://h\xC3\xBC/x", "javascript:x"})
    CHECK_FAILS(Url::parse(text), ErrorCode::invalid_argument, "not a URL that can be read");
}

TEST_CASE("a refusal does not repeat the URL") {
  const auto refused = Url::parse("https://user:secret@h:99999/x?secret");
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()).find("secret") == std::string::npos);
}

TEST_CASE("redirects are relative or whole, without credentials") {
  CHECK(target("https://h/a/b?q", "c?r") == "https://h/a/c?r");
  CHECK(target("https://h/a/b?q", "/c") == "https://h/c");
  CHECK(target("https://h/a/b", "//other/c") == "https://other/c");
  CHECK(target("http://h/a", "https://other:8/c") == "https://other:8/c");
  const auto there = url("http://h/a").redirected("http://user:secret@other/c");
  REQUIRE(there);
  CHECK(there->user == "");
  CHECK(there->password == "");
}

TEST_CASE("redirects do not lead out of http and https, nor down to http") {
  CHECK(target("https://h/a", "http://h/a") == "the store redirects away from https");
  CHECK(target("http://h/a", "file:///etc/passwd") == "the store redirects away from http");
  CHECK(target("http://h/a", "ftp://h/a") == "the store redirects away from http");
  CHECK(target("http://h/a", "gopher://h/a") == "the store redirects away from http");
}

TEST_CASE("a sibling is in the folder, or below") {
  CHECK(sibling("https://h/a/model.json", "model-1.pt") == "https://h/a/model-1.pt");
  CHECK(sibling("https://h/a/model.json?token=1", "sub/x y+%") ==
        "https://h/a/sub/x%20y%2B%25?token=1");
  for (const char* name : {"", "/x", "../x", "a/../x", "a//b", "a/", ".", "a/./b"})
    CHECK(sibling("https://h/a/model.json", name) ==
          "the name of a file beside a URL leads out of its folder");
  CHECK(sibling("https://h/a/m", "%2e%2e") == "https://h/a/%252e%252e");
}

TEST_CASE("a signature is for one path") {
  CHECK(sibling("https://h/m?X-Amz-Date=1&X-Amz-Signature=2", "n") == "https://h/n");
  CHECK(sibling("https://h/m?sig=2", "n") == "https://h/n");
  CHECK(sibling("https://h/m?a=1&Signature=2", "n") == "https://h/n");
  CHECK(sibling("https://h/m?design=2", "n") == "https://h/n?design=2");
}

TEST_CASE("percent-encoding is undone") {
  CHECK(remote::percent_decoded("a%20b%C3%bc+%") == "a b\xC3\xBC+%");
  CHECK(remote::percent_decoded("%4") == "%4");
  CHECK(remote::percent_decoded("%zz") == "%zz");
  CHECK(remote::percent_encoded("a b+\xC3\xBC/~-._") == "a%20b%2B%C3%BC/~-._");
}

TEST_CASE("is_url knows the schemes in any case") {
  for (const char* text : {"http://h", "HTTPS://h", "s3://b/k", "file:///x", "hf://o/n"})
    CHECK(is_url(text));
  for (const char* text : {"", "http:/h", "model.pt", "://", "s3:/b", "xs3://b", "gs://b/k"})
    CHECK_FALSE(is_url(text));
}

TEST_CASE("a version's file name has the tag, of which nothing is ambiguous") {
  CHECK(version_file_name("model.pt", {.tag = "\"5f-1a\""}) == "model.pt@5f-1a");
  CHECK(version_file_name("model.pt", {.tag = "W/\"5f\""}) == "model.pt@5f");
  CHECK(version_file_name("m", {.tag = "\"a/b_c\""}) == "m@a_2Fb_5Fc");
  CHECK(version_file_name("m", {.tag = "\"../x\""}) == "m@.._2Fx");
  CHECK(version_file_name("m", {.tag = "\"\""}) == "");
  CHECK(version_file_name("m", {}) == "");
}
