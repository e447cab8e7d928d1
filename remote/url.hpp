// URLs as libcurl reads them, so that what is checked here is what is asked there.
#pragma once

#include <string>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::remote {

struct Url {
  std::string scheme;      // "http", "https" or "file"
  std::string host;        // empty for file; with brackets for an IPv6 address
  std::string port;        // as a number, the scheme's own one as well; empty for file
  std::string path;        // percent-encoded, without dot segments; begins with a slash
  std::string query = {};  // without its question mark
  std::string user = {};   // decoded, as is the password
  std::string password = {};

  // Fails with invalid_argument for what is no URL of these schemes, and for control characters,
  // spaces and a host that is not ASCII. Other bytes of the path are percent-encoded.
  static Result<Url> parse(const std::string& text);

  // What is requested: all but user and password.
  std::string text() const;
  // For messages: all but query, user and password.
  std::string name() const;
  // What tells this file from others: all but user, password, and what of the query signs it or is
  // a token.
  std::string identity() const;
  bool has_origin_of(const Url& other) const noexcept;
  bool is_presigned() const noexcept;
  // The target of a redirect. Fails with io if it leads away from http and https, or from https to
  // http. It has no user and password.
  Result<Url> redirected(const std::string& location) const;
  // A file beside this one. The query stays unless it is a signature, which is for one path.
  // Fails with invalid_argument for a name that is not below the folder: absolute, empty, or with
  // an empty segment or one of dots.
  Result<Url> sibling(std::string_view relative) const;
};

// Letters, digits, "-._~" and slashes stay.
std::string percent_encoded(std::string_view text);
// The path's bytes as a file system has them.
std::string percent_decoded(std::string_view text);
// Fails likewise.
Result<void> check_relative(std::string_view relative);

}  // namespace weightmap::remote
