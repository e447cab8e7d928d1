// Signatures of OpenSSF Model Signing as lists of digests: what is read, and what is refused.
#include "runtime/services/verify/model_signature.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/bytes/base64.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/fetch.hpp"

using namespace weightmap;

namespace {

const std::string digest_of_a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
const std::string digest_of_b = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";
// sha256(bytes.fromhex(digest_of_a + digest_of_b))
const std::string digest_of_both =
    "e5a01fee14e0ed5c48714f22180f25ad8365b53f9779f79dc4a3d7e93963f94a";

std::string base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      bits = bits << 8 | (j < text.size() ? static_cast<unsigned char>(text[j]) : 0u);
    for (int shift = 18; shift >= 0; shift -= 6) encoded += digits[bits >> shift & 63];
  }
  for (std::size_t rest = text.size(); rest % 3 != 0; ++rest)
    encoded[encoded.size() - 3 + rest % 3] = '=';
  return encoded;
}

std::string resource(const std::string& name, const std::string& digest = digest_of_a,
                     const std::string& algorithm = "sha256") {
  return R"({"algorithm":")" + algorithm + R"(","digest":")" + digest + R"(","name":")" + name +
         "\"}";
}

// The text of one, each part of which a test may change.
struct Signature {
  std::string resources = resource("a.safetensors") + "," + resource("sub/b.json", digest_of_b);
  std::string subject = digest_of_both;
  std::string subjects = R"({"name":"m","digest":{"sha256":")";
  std::string predicate_type = "https://model_signing/signature/v1.0";
  std::string serialization = R"({"method":"files","hash_type":"sha256","allow_symlinks":false})";
  std::string payload_type = "application/vnd.in-toto+json";

  std::string statement() const {
    return R"({"_type":"https://in-toto.io/Statement/v1","subject":[)" + subjects + subject +
           R"("}}],"predicateType":")" + predicate_type + R"(","predicate":{"serialization":)" +
           serialization + R"(,"resources":[)" + resources + "]}}";
  }
  std::string text() const { return with_payload(base64(statement())); }
  std::string with_payload(const std::string& payload) const {
    return R"({"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","dsseEnvelope":{)"
           R"("payload":")" +
           payload + R"(","payloadType":")" + payload_type + R"(","signatures":[]}})";
  }
};

}  // namespace

TEST_CASE("base64 is of whole groups, in its own letters") {
  for (const std::string text : {"", "a", "ab", "abc", "abcd", "\xff\xfe\x00\x3f"})
    CHECK(bytes::decode_base64(base64(text)) == text);
  CHECK(base64("ab") == "YWI=");
  for (const char* const wrong : {"YWI", "YW=I", "Y===", "YWI=YWI=", "YW I", "YW_-"})
    CHECK_MESSAGE(!bytes::decode_base64(wrong), wrong);
}

TEST_CASE("a signature lists its files with their digests") {
  const std::vector<ListedSum> sums = read_model_signature(Signature().text()).value();
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].name == "a.safetensors");
  CHECK(bytes::to_hex(sums[0].sha256) == digest_of_a);
  CHECK(sums[1].name == "sub/b.json");
  CHECK(bytes::to_hex(sums[1].sha256) == digest_of_b);
  CHECK(sums[1].place == "predicate.resources[1]");
}

TEST_CASE("a file of it is a list of digests wherever one is taken") {
  const test::TemporaryFolder folder;
  const auto path = folder.write("model.sig", "\n " + Signature().text());
  const Sha256Sums sums = read_sha256_sums(path).value();
  CHECK(sums.size() == 2);
  CHECK(sums.at("sub/b.json") == sha256_of_hex(digest_of_b));
  const std::vector<FileSum> files = read_sums(path).value();
  CHECK(files.front().file == folder.path() / "a.safetensors");
  CHECK(files.front().source == "model.sig, predicate.resources[0]");
  CHECK_FAILS_IN(read_sha256_sums(folder.write("broken", "{}")), ErrorCode::corrupt,
                 "dsseEnvelope is missing", folder.path() / "broken");
}

TEST_CASE("what the package model-signing has written is read") {
  const Sha256Sums sums =
      read_sha256_sums(std::filesystem::path(WEIGHTMAP_TEST_DATA) / "signatures/model.sig").value();
  CHECK(sums ==
        Sha256Sums{{".hidden", *sha256_of_hex("91ee5e9f42ba3d34e414443b36a27b797a56a47aad6b"
                                              "b1e4c1769e69c77ce0ca")},
                   {"a.safetensors", *sha256_of_hex("87428fc522803d31065e7bce3cf03fe47509663"
                                                    "1e5e07bbd7a0fde60c4cf25c7")},
                   {"sub/b.json", *sha256_of_hex("ca3d163bab055381827226140568f3bef7eaac187"
                                                 "cebd76878e0b63e9e442356")}});
}

TEST_CASE("what is no signature is refused by its field") {
  const auto refused = [](const Signature& signature, ErrorCode code, const std::string& why) {
    CHECK_FAILS(read_model_signature(signature.text()), code, why);
  };
  CHECK_FAILS(read_model_signature("{"), ErrorCode::corrupt, "it is no JSON");
  CHECK_FAILS(read_model_signature("[]"), ErrorCode::corrupt, "dsseEnvelope is missing");
  CHECK_FAILS(read_model_signature(R"({"dsseEnvelope":{"payloadType":7}})"), ErrorCode::corrupt,
              "dsseEnvelope.payloadType is no string");
  CHECK_FAILS(
      read_model_signature(R"({"dsseEnvelope":{"payloadType":"application/vnd.in-toto+json"}})"),
      ErrorCode::corrupt, "dsseEnvelope.payload is missing");
  CHECK_FAILS(read_model_signature(Signature().with_payload("*")), ErrorCode::corrupt,
              "dsseEnvelope.payload is no base64");
  CHECK_FAILS(read_model_signature(Signature().with_payload(base64("{]"))), ErrorCode::corrupt,
              "dsseEnvelope.payload is no JSON");
  CHECK_FAILS(read_model_signature(Signature().with_payload(base64(std::string(100, '[')))),
              ErrorCode::corrupt, "dsseEnvelope.payload is no JSON");
  refused({.payload_type = "text"}, ErrorCode::unsupported,
          "dsseEnvelope.payloadType is \"text\", not \"application/vnd.in-toto+json\"");
  refused({.predicate_type = "https://model_signing/signature/v2.0"}, ErrorCode::unsupported,
          "predicateType is \"https://model_signing/signature/v2.0\"");
  refused({.serialization = R"({"method":"shards","hash_type":"sha256"})"}, ErrorCode::unsupported,
          "predicate.serialization.method is \"shards\", not \"files\"");
  refused({.serialization = R"({"method":"files","hash_type":"blake2b"})"}, ErrorCode::unsupported,
          "predicate.serialization.hash_type is \"blake2b\", not \"sha256\"");
  refused({.resources = "7"}, ErrorCode::corrupt, "predicate.resources[0].algorithm is missing");
  refused({.resources = resource("a", digest_of_a, "blake3")}, ErrorCode::unsupported,
          "predicate.resources[0].algorithm is \"blake3\"");
  refused({.resources = resource("a") + "," + resource("b", "ab")}, ErrorCode::corrupt,
          "predicate.resources[1].digest is \"ab\", not 64 hexadecimal digits");
  refused({.resources = resource("a") + "," + resource("a", digest_of_b)}, ErrorCode::corrupt,
          "predicate.resources[1].name is \"a\" once more");
  for (const std::string name : {"/a", "../a", "a/../b", "./a", "a//b", ""})
    refused({.resources = resource(name)}, ErrorCode::corrupt,
            "predicate.resources[0].name is \"" + name + "\", which is no name of a file");
  refused({.subject = digest_of_a}, ErrorCode::corrupt,
          "subject[0].digest.sha256 is " + digest_of_a +
              ", and that of the digests in predicate.resources is " + digest_of_both);
  refused({.subject = "ab"}, ErrorCode::corrupt, "subject[0].digest.sha256 is \"ab\"");
  refused({.subjects = R"({"digest":{"sha256":""}},{"digest":{"sha256":")"}, ErrorCode::corrupt,
          "subject has 2 elements, not 1");
}

TEST_CASE("a signature that is cut at any length is refused") {
  const std::string text = Signature().text();
  const std::string statement = Signature().statement();
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_FALSE(read_model_signature(text.substr(0, length)));
  for (std::size_t length = 0; length < statement.size(); ++length)
    CHECK_FALSE(
        read_model_signature(Signature().with_payload(base64(statement.substr(0, length)))));
}

TEST_CASE("a list of more than 64 MiB is none") {
  const test::TemporaryFolder folder;
  const auto path = folder.write("SHA256SUMS", "");
  std::filesystem::resize_file(path, (std::uint64_t{64} << 20) + 1);
  CHECK_FAILS_IN(read_sha256_sums(path), ErrorCode::limit_exceeded,
                 "has 67108865 bytes, more than any list of checksums", path);
}
