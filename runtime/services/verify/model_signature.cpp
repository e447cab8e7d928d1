#include "runtime/services/verify/model_signature.hpp"

#include <optional>
#include <set>
#include <span>
#include <string>

#include "runtime/base/bytes/base64.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/json/document.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap {
namespace {

tl::unexpected<Error> refused(ErrorCode code, const std::string& why) {
  return failure(code, "is no signature of OpenSSF Model Signing that can be read: " + why);
}

// A value, and what it is called in errors: "predicate.resources[3]".
struct Field {
  Value value;
  std::string name;

  Result<Field> at(const char* key) const {
    Field found{Value(), (name.empty() ? "" : name + ".") + key};
    const std::optional<Value> inner = value.find(key);
    if (!inner) return refused(ErrorCode::corrupt, found.name + " is missing");
    found.value = *inner;
    return found;
  }
  Result<std::string_view> text(const char* key) const {
    TRY_ASSIGN(const Field found, at(key));
    const std::optional<std::string_view> text = found.value.string();
    if (!text) return refused(ErrorCode::corrupt, found.name + " is no string");
    return *text;
  }
  Result<void> must_be(const char* key, std::string_view wanted) const {
    TRY_ASSIGN(const std::string_view found, text(key));
    if (found == wanted) return {};
    return refused(ErrorCode::unsupported, (name.empty() ? "" : name + ".") + key + " is " +
                                               bytes::quote(found) + ", not " +
                                               bytes::quote(wanted));
  }
  Result<std::vector<Field>> list(const char* key) const {
    TRY_ASSIGN(const Field found, at(key));
    if (found.value.kind() != Value::Kind::list)
      return refused(ErrorCode::corrupt, found.name + " is no list");
    std::vector<Field> elements;
    for (const Value& element : found.value.elements())
      elements.push_back({element, found.name + "[" + std::to_string(elements.size()) + "]"});
    return elements;
  }
  Result<bytes::Sha256::Digest> digest(const char* key) const {
    TRY_ASSIGN(const std::string_view hex, text(key));
    if (const auto digest = bytes::parse_sha256(hex)) return *digest;
    return refused(ErrorCode::corrupt,
                   name + "." + key + " is " + bytes::quote(hex) + ", not 64 hexadecimal digits");
  }
};

Result<std::unique_ptr<json::Document>> parse_json(std::string_view text, const char* what) {
  Result<std::unique_ptr<json::Document>> parsed = json::Document::parse(text);
  if (parsed) return parsed;
  return refused(parsed.error().code, std::string(what) + ": " + parsed.error().message);
}

Result<std::string> payload_of(const Field& bundle) {
  TRY_ASSIGN(const Field envelope, bundle.at("dsseEnvelope"));
  TRY(envelope.must_be("payloadType", "application/vnd.in-toto+json"));
  TRY_ASSIGN(const std::string_view encoded, envelope.text("payload"));
  std::optional<std::string> payload = bytes::decode_base64(encoded);
  if (!payload) return refused(ErrorCode::corrupt, "dsseEnvelope.payload is no base64");
  return *std::move(payload);
}

// Of whole files.
Result<ListedSum> sum_of(const Field& resource) {
  TRY(resource.must_be("algorithm", "sha256"));
  TRY_ASSIGN(const std::string_view name, resource.text("name"));
  if (!sets::stays_below(name))
    return refused(ErrorCode::corrupt, resource.name + ".name is " + bytes::quote(name) +
                                           ", which is no name of a file in the folder");
  TRY_ASSIGN(const bytes::Sha256::Digest sum, resource.digest("digest"));
  return ListedSum{std::string(name), sum, resource.name};
}

// The subject is the digest of the digests in their order.
Result<void> check_subject(const Field& statement, const std::vector<ListedSum>& sums) {
  bytes::Sha256 all;
  for (const ListedSum& sum : sums) all.add(sum.sha256);
  TRY_ASSIGN(const std::vector<Field> subjects, statement.list("subject"));
  if (subjects.size() != 1)
    return refused(ErrorCode::corrupt,
                   "subject has " + std::to_string(subjects.size()) + " elements, not 1");
  TRY_ASSIGN(const Field digest, subjects.front().at("digest"));
  TRY_ASSIGN(const bytes::Sha256::Digest wanted, digest.digest("sha256"));
  const bytes::Sha256::Digest found = all.digest();
  if (found == wanted) return {};
  return refused(ErrorCode::corrupt, digest.name + ".sha256 is " + bytes::to_hex(wanted) +
                                         ", and that of the digests in predicate.resources is " +
                                         bytes::to_hex(found));
}

}  // namespace

Result<std::vector<ListedSum>> read_model_signature(std::string_view json) {
  TRY_ASSIGN(const std::unique_ptr<json::Document> bundle, parse_json(json, "it is no JSON"));
  TRY_ASSIGN(const std::string payload, payload_of({bundle->root(), {}}));
  TRY_ASSIGN(const std::unique_ptr<json::Document> document,
             parse_json(payload, "dsseEnvelope.payload is no JSON"));
  const Field statement{document->root(), {}};
  TRY(statement.must_be("predicateType", "https://model_signing/signature/v1.0"));
  TRY_ASSIGN(const Field predicate, statement.at("predicate"));
  TRY_ASSIGN(const Field serialization, predicate.at("serialization"));
  TRY(serialization.must_be("method", "files"));
  TRY(serialization.must_be("hash_type", "sha256"));
  std::vector<ListedSum> sums;
  std::set<std::string> names;
  TRY_ASSIGN(const std::vector<Field> resources, predicate.list("resources"));
  for (const Field& resource : resources) {
    TRY_ASSIGN(ListedSum sum, sum_of(resource));
    if (!names.insert(sum.name).second)
      return refused(ErrorCode::corrupt,
                     resource.name + ".name is " + bytes::quote(sum.name) + " once more");
    sums.push_back(std::move(sum));
  }
  TRY(check_subject(statement, sums));
  return sums;
}

}  // namespace weightmap
