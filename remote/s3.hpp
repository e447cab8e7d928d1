// s3://bucket/key, and the variables of the environment that give access to it.
#pragma once

#include <string>
#include <string_view>

#include "remote/url.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

struct S3Object {
  std::string bucket;
  std::string key;  // as it is, not percent-encoded

  // Fails with invalid_argument for a bucket that cannot be one, an empty key and control
  // characters.
  static Result<S3Object> parse(const std::string& text);
  std::string name() const;  // "s3://bucket/key"
  Result<S3Object> sibling(std::string_view relative) const;
};

// Of the headers x-amz-checksum-sha256, which is base64 with "-N" behind it for an object of N
// parts, and x-amz-checksum-type. Any other text says nothing.
StoreSum parse_checksum(std::string_view text, std::string_view type);

struct S3Access {
  std::string key_id = {};  // empty: requests are not signed
  std::string secret = {};
  std::string session_token = {};
  std::string region = {};
  std::string endpoint = {};  // empty: Amazon's

  // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
  // AWS_ENDPOINT_URL. Fails with invalid_argument if only one of the two keys is set, or for a
  // region that cannot be one.
  static Result<S3Access> from_environment();
  // The URL to request: in the style of paths for an own endpoint and for a bucket with dots, which
  // no certificate names.
  Result<Url> url_of(const S3Object& object) const;
};

}  // namespace weightmap::remote
