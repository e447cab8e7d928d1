#include "tools/hold/source_identity.hpp"

#include <algorithm>
#include <array>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid_io.hpp>

namespace weightmap::cli::hold {
namespace {

// As S3, GCS, CloudFront, OSS and Azure spell them.
bool is_credential(std::string_view parameter) {
  constexpr std::array<std::string_view, 3> beginnings = {"x-amz-", "x-goog-", "x-oss-"};
  constexpr std::array<std::string_view, 21> names = {"signature",
                                                      "expires",
                                                      "awsaccesskeyid",
                                                      "googleaccessid",
                                                      "key-pair-id",
                                                      "policy",
                                                      "sig",
                                                      "se",
                                                      "sp",
                                                      "sv",
                                                      "sr",
                                                      "st",
                                                      "spr",
                                                      "skoid",
                                                      "sktid",
                                                      "skt",
                                                      "ske",
                                                      "sks",
                                                      "skv",
                                                      "token",
                                                      "access_token"};
  std::string name(parameter.substr(0, parameter.find('=')));
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(beginnings, [&](auto begin) { return name.starts_with(begin); });
}

}  // namespace

std::string source_identity(std::string_view url, std::string shown) {
  url = url.substr(0, url.find('#'));
  const std::size_t query = url.find('?');
  if (query == url.npos) return shown;
  for (std::string_view left = url.substr(query + 1); !left.empty();) {
    const std::string_view parameter = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(parameter.size() + 1, left.size()));
    if (!parameter.empty() && !is_credential(parameter)) shown.append("&").append(parameter);
  }
  return shown;
}

std::string digest_of(const std::string& identity) {
  const boost::uuids::name_generator_sha1 hash{boost::uuids::ns::oid()};
  std::string digits = boost::uuids::to_string(hash(identity));
  std::erase(digits, '-');
  return digits.substr(0, 16);
}

}  // namespace weightmap::cli::hold
