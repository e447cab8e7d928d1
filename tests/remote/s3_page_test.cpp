// The answers of S3's ListObjectsV2.
#include "remote/s3_page.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace weightmap;
using remote::read_s3_page;

namespace {

std::string object(const std::string& key, const std::string& more = "<Size>1</Size>") {
  return "<Contents><Key>" + key + "</Key>" + more + "</Contents>";
}

std::string page(const std::string& inner) {
  return R"(<?xml version="1.0"?>)"
         "\n"
         R"(<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">)" +
         inner + "</ListBucketResult>";
}

std::vector<std::string> names(const std::string& inner, std::string_view prefix = "") {
  std::vector<std::string> found;
  const auto read = read_s3_page(page(inner), prefix);
  REQUIRE(read);
  for (const ListedFile& file : read->files) found.push_back(file.name);
  return found;
}

using Names = std::vector<std::string>;
const std::string encoded = "<EncodingType>url</EncodingType>";

TEST_CASE("a listed object has its name behind the prefix, its size and its tag") {
  const auto read = read_s3_page(page(object("llama/a.json",
                                             "<LastModified>2026-11-29T09:00:00.000Z</LastModified>"
                                             "<ETag>&quot;9f1c-2&quot;</ETag><Size>7</Size>"
                                             "<Owner><ID>me</ID></Owner>")),
                                 "llama/");
  REQUIRE(read);
  REQUIRE(read->files.size() == 1);
  CHECK(read->files[0].name == "a.json");
  CHECK(read->files[0].size == 7);
  CHECK(read->files[0].tag == "\"9f1c-2\"");
  CHECK(read->next.empty());
}

TEST_CASE("entities of keys are decoded once, and unknown ones stay") {
  CHECK(names(object("a&amp;b&lt;&gt;&quot;&apos;&#38;&#x26;")) == Names{"a&b<>\"'&&"});
  CHECK(names(object("a&amp;lt;")) == Names{"a&lt;"});
  CHECK(names(object("a&no;&b")) == Names{"a&no;&b"});
}

TEST_CASE("encoded keys are decoded, with spaces as a form has them") {
  CHECK(names(encoded + object("a+b%2Bc%26%C3%BC.json")) == Names{"a b+c&\u00fc.json"});
  CHECK(names(object("a+b%2B")) == Names{"a+b%2B"});
}

TEST_CASE("the next page is asked for by its token") {
  const auto read = read_s3_page(page("<IsTruncated>true</IsTruncated>"
                                      "<NextContinuationToken>1/&amp;=</NextContinuationToken>"),
                                 "");
  REQUIRE(read);
  CHECK(read->next == "1/&=");
  CHECK_FALSE(read_s3_page(page("<IsTruncated>true</IsTruncated>"), ""));
}

TEST_CASE("keys that are not of the folder are left out") {
  CHECK(names(object("llama/") + object("llama/below/a") + object("other/a") + object("llama/..") +
                  object("llama//a") + object("llama/a"),
              "llama/") == Names{"a"});
  CHECK(names(encoded + object("llama/%2E%2E") + object("llama/a%00b"), "llama/").empty());
}

TEST_CASE("what is no listing of S3 is none") {
  CHECK_FALSE(read_s3_page("", ""));
  CHECK_FALSE(read_s3_page("<html></html>", ""));
  CHECK_FALSE(read_s3_page(page(object("a", "")), ""));
  CHECK_FALSE(read_s3_page(page(object("a", "<Size>-1</Size>")), ""));
  CHECK(read_s3_page(page("<Contents><Key>a</Key><Size>1</Size>"), "")->files.empty());
}

}  // namespace
