// The answers of S3's ListObjectsV2.
#include "remote/s3_page.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace weightmap;
using remote::read_s3_page;

namespace {

std::string s3_contents(const std::string& key, const std::string& more = "<Size>1</Size>") {
  return "<Contents><Key>" + key + "</Key>" + more + "</Contents>";
}

std::string s3_listing(const std::string& inner) {
  return R"(<?xml version="1.0"?>)"
         "\n"
         R"(<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">)" +
         inner + "</ListBucketResult>";
}

std::vector<std::string> listed_names(const std::string& inner, std::string_view prefix = "") {
  std::vector<std::string> found;
  const auto read = read_s3_page(s3_listing(inner), prefix);
  REQUIRE(read);
  for (const ListedFile& file : read->files) found.push_back(file.name);
  return found;
}

using KeyNames = std::vector<std::string>;
const std::string is_url_encoded = "<EncodingType>url</EncodingType>";

TEST_CASE("a listed object has its name behind the prefix, its size and its tag") {
  const auto read =
      read_s3_page(s3_listing(s3_contents("llama/a.json",
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
  CHECK(listed_names(s3_contents("a&amp;b&lt;&gt;&quot;&apos;&#38;&#x26;")) ==
        KeyNames{"a&b<>\"'&&"});
  CHECK(listed_names(s3_contents("a&amp;lt;")) == KeyNames{"a&lt;"});
  CHECK(listed_names(s3_contents("a&no;&b")) == KeyNames{"a&no;&b"});
}

TEST_CASE("is_url_encoded keys are decoded, with spaces as a form has them") {
  CHECK(listed_names(is_url_encoded + s3_contents("a+b%2Bc%26%C3%BC.json")) ==
        KeyNames{"a b+c&\u00fc.json"});
  CHECK(listed_names(s3_contents("a+b%2B")) == KeyNames{"a+b%2B"});
}

TEST_CASE("the next page is asked for by its token") {
  const auto read =
      read_s3_page(s3_listing("<IsTruncated>true</IsTruncated>"
                              "<NextContinuationToken>1/&amp;=</NextContinuationToken>"),
                   "");
  REQUIRE(read);
  CHECK(read->next == "1/&=");
  CHECK_FALSE(read_s3_page(s3_listing("<IsTruncated>true</IsTruncated>"), ""));
}

TEST_CASE("keys that are not of the folder are left out") {
  CHECK(listed_names(s3_contents("llama/") + s3_contents("llama/below/a") + s3_contents("other/a") +
                         s3_contents("llama/..") + s3_contents("llama//a") + s3_contents("llama/a"),
                     "llama/") == KeyNames{"a"});
  CHECK(listed_names(is_url_encoded + s3_contents("llama/%2E%2E") + s3_contents("llama/a%00b"),
                     "llama/")
            .empty());
}

TEST_CASE("what is no listing of S3 is none") {
  CHECK_FALSE(read_s3_page("", ""));
  CHECK_FALSE(read_s3_page("<html></html>", ""));
  CHECK_FALSE(read_s3_page(s3_listing(s3_contents("a", "")), ""));
  CHECK_FALSE(read_s3_page(s3_listing(s3_contents("a", "<Size>-1</Size>")), ""));
  CHECK(read_s3_page(s3_listing("<Contents><Key>a</Key><Size>1</Size>"), "")->files.empty());
}

}  // namespace
