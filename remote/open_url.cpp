#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "remote/file_source.hpp"
#include "remote/http_source.hpp"
#include "remote/s3.hpp"
#include "remote/url.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace {

bool has_scheme(std::string_view text, std::string_view scheme) noexcept {
  return text.size() > scheme.size() && text.substr(scheme.size()).starts_with("://") &&
         std::equal(scheme.begin(), scheme.end(), text.begin(), [](char lower, char c) {
           return lower == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
         });
}

}  // namespace

bool is_url(const std::string& text) noexcept {
  constexpr std::array<std::string_view, 5> schemes = {"http", "https", "s3", "file", "hf"};
  return std::any_of(schemes.begin(), schemes.end(),
                     [&](std::string_view scheme) { return has_scheme(text, scheme); });
}

Result<std::unique_ptr<RangeSource>> open_url(const std::string& url,
                                              const RemoteOptions& options) {
  if (has_scheme(url, "s3")) {
    TRY_ASSIGN(remote::S3Object object, remote::S3Object::parse(url));
    return remote::HttpSource::open(url, std::move(object), options);
  }
  if (has_scheme(url, "hf")) {
    TRY_ASSIGN(std::shared_ptr<HubClient> client, hub_client(options));
    return open_hub_model(std::move(client), url);
  }
  TRY_ASSIGN(remote::Url parsed, remote::Url::parse(url));
  if (parsed.scheme == "file") return std::make_unique<remote::FileSource>(std::move(parsed));
  return remote::HttpSource::open(url, std::move(parsed), options);
}

std::string version_file_name(const std::string& file, const RemoteVersion& version) {
  std::string_view tag = version.tag;
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  if (tag.empty()) return {};
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name = file + "@";
  for (const char c : tag) {
    const bool stays = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '-' || c == '.';
    const auto byte = static_cast<unsigned char>(c);
    if (stays)
      name += c;
    else
      name.append({'_', digits[byte >> 4], digits[byte & 15]});
  }
  return name;
}

}  // namespace weightmap
