#include "tools/hold/source_identity.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

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
  std::uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : identity) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(sum >> shift) & 15];
  return digits;
}

}  // namespace weightmap::cli::hold
