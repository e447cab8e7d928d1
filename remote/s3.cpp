#include "remote/s3.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/bytes/base64.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

constexpr std::string_view s3_scheme = "s3://";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Both become part of a host's name.
bool is_plain(std::string_view text, std::string_view also) noexcept {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           also.find(c) != also.npos;
  });
}

bool has_controls(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

}  // namespace

Result<S3Object> S3Object::parse(const std::string& text) {
  const std::size_t slash = std::min(text.find('/', s3_scheme.size()), text.size());
  S3Object object{text.substr(s3_scheme.size(), slash - s3_scheme.size()),
                  slash == text.size() ? "" : text.substr(slash + 1)};
  if (object.bucket.empty() || object.bucket.front() == '.' || !is_plain(object.bucket, ".-_"))
    return failure(ErrorCode::invalid_argument, "not a bucket of S3: s3://bucket/key is wanted");
  if (object.key.empty() || has_controls(object.key))
    return failure(ErrorCode::invalid_argument, "not a key of S3: s3://bucket/key is wanted");
  return object;
}

std::string S3Object::name() const {
  std::string name = std::string(s3_scheme) + bucket + "/";
  for (const char c : key)
    name += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c) : percent_encoded({&c, 1});
  return name;
}

Result<S3Object> S3Object::sibling(std::string_view relative) const {
  TRY(check_relative(relative));
  return parse(std::string(s3_scheme) + bucket + "/" + key.substr(0, key.rfind('/') + 1) +
               std::string(relative));
}

StoreSum parse_checksum(std::string_view text, std::string_view type) {
  constexpr std::size_t length = 44;  // of 32 bytes
  std::array<std::byte, 32> sum;
  const std::optional<std::string> decoded = bytes::decode_base64(text.substr(0, length));
  if (!decoded || decoded->size() != sum.size()) return {};
  std::ranges::copy(std::as_bytes(std::span(*decoded)), sum.begin());
  if (text.size() == length && type != "COMPOSITE") return {.sha256 = sum};
  return {.is_composite = text.size() == length || text[length] == '-'};
}

Result<S3Access> S3Access::from_environment() {
  S3Access access{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                  variable("AWS_SESSION_TOKEN"), variable("AWS_REGION"),
                  variable("AWS_ENDPOINT_URL")};
  if (access.key_id.empty() != access.secret.empty())
    return failure(ErrorCode::invalid_argument,
                   "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set");
  if (access.region.empty()) access.region = variable("AWS_DEFAULT_REGION");
  if (access.region.empty()) access.region = "us-east-1";
  if (!is_plain(access.region, "-"))
    return failure(ErrorCode::invalid_argument, "AWS_REGION is not the name of a region");
  return access;
}

Result<Url> S3Access::url_of(const S3Object& object) const {
  const std::string key = "/" + percent_encoded(object.key);
  if (endpoint.empty()) {
    const std::string amazon = "s3." + region + ".amazonaws.com";
    const bool by_path = object.bucket.find('.') != object.bucket.npos;
    Url url{.scheme = "https",
            .host = by_path ? amazon : object.bucket + "." + amazon,
            .port = "443",
            .path = key};
    if (by_path) url.path = "/" + object.bucket + key;
    return url;
  }
  auto url = Url::parse(endpoint);
  if (!url || url->scheme == "file")
    return failure(ErrorCode::invalid_argument, "AWS_ENDPOINT_URL is not a URL of https or http");
  if (!url->path.ends_with('/')) url->path += '/';
  url->path += object.bucket + key;
  url->query.clear();
  url->user.clear();
  url->password.clear();
  return url;
}

}  // namespace weightmap::remote
