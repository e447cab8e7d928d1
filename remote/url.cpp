#include "remote/url.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

struct HandleEnd {
  void operator()(CURLU* handle) const noexcept { curl_url_cleanup(handle); }
};
using Handle = std::unique_ptr<CURLU, HandleEnd>;

Handle new_handle() {
  Handle handle(curl_url());
  if (!handle) throw std::bad_alloc();
  return handle;
}

// Empty if the URL has no such part.
std::string part(CURLU* handle, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(handle, which, &text, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, &curl_free);
  return text;
}

constexpr std::string_view default_port(std::string_view scheme) noexcept {
  return scheme == "https" ? "443" : scheme == "http" ? "80" : "";
}

bool is_letter_or_digit(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool is_control_or_space(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= 0x20 || byte == 0x7F;
}

bool is_ascii(std::string_view text) noexcept {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

template <class Stays>
std::string encoded(std::string_view text, const Stays& stays) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (stays(c)) {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

std::string with_ascii_only(std::string_view text) {
  return encoded(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

tl::unexpected<Error> refusal(const char* why) {
  return failure(ErrorCode::invalid_argument, std::string("not a URL that can be read: ") + why);
}

Result<Url> from_handle(CURLU* handle) {
  Url url;
  url.scheme = part(handle, CURLUPART_SCHEME);
  if (url.scheme != "http" && url.scheme != "https" && url.scheme != "file")
    return refusal("its scheme is none of https, http, s3, hf and file");
  url.host = part(handle, CURLUPART_HOST);
  url.port = part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  url.path = with_ascii_only(part(handle, CURLUPART_PATH));
  url.query = with_ascii_only(part(handle, CURLUPART_QUERY));
  url.user = part(handle, CURLUPART_USER, CURLU_URLDECODE);
  url.password = part(handle, CURLUPART_PASSWORD, CURLU_URLDECODE);
  if (!is_ascii(url.host)) return refusal("its host is not ASCII");
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (url.scheme == "file") {
    url.host.clear();  // libcurl takes none and this machine's only
    url.port.clear();
  }
  if (url.path.empty()) url.path = "/";
  return url;
}

// As the stores spell the signature within a query: S3, GCS, S3 of old, Azure.
bool is_signed(std::string_view query) noexcept {
  static constexpr std::array<std::string_view, 4> names = {
      "X-Amz-Signature=", "X-Goog-Signature=", "Signature=", "sig="};
  const auto begins = [&](std::size_t at) {
    return std::any_of(names.begin(), names.end(),
                       [&](auto name) { return query.substr(at).starts_with(name); });
  };
  if (begins(0)) return true;
  for (std::size_t at = query.find('&'); at != query.npos; at = query.find('&', at + 1))
    if (begins(at + 1)) return true;
  return false;
}

// Parameters that are renewed while the file stays the same.
bool is_credential(std::string_view parameter) noexcept {
  static constexpr std::array<std::string_view, 3> beginnings = {"x-amz-", "x-goog-", "x-oss-"};
  static constexpr std::array<std::string_view, 21> names = {"signature",
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
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(beginnings, [&](auto begin) { return name.starts_with(begin); });
}

}  // namespace

Result<Url> Url::parse(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), is_control_or_space))
    return refusal("it has a space or a control character, which %20 and the like stand for");
  const Handle handle = new_handle();
  // file:// is read here, also by a libcurl that does not know it.
  if (curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
      CURLUE_OK)
    return refusal("libcurl cannot take it apart");
  return from_handle(handle.get());
}

std::string Url::text() const {
  std::string text = scheme + "://" + host;
  if (port != default_port(scheme)) text += ":" + port;
  text += path;
  if (!query.empty()) text += "?" + query;
  return text;
}

std::string Url::name() const {
  Url shown = *this;
  shown.query.clear();
  return shown.text();
}

bool Url::is_presigned() const noexcept { return is_signed(query); }

std::string Url::identity() const {
  std::string text = scheme + "://" + host + ':' + port + path;
  for (std::string_view left = query; !left.empty();) {
    const std::string_view parameter = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(parameter.size() + 1, left.size()));
    if (!parameter.empty() && !is_credential(parameter)) text.append("&").append(parameter);
  }
  return text;
}

bool Url::has_origin_of(const Url& other) const noexcept {
  return scheme == other.scheme && host == other.host && port == other.port;
}

Result<Url> Url::redirected(const std::string& location) const {
  const Handle handle = new_handle();
  if (curl_url_set(handle.get(), CURLUPART_URL, text().c_str(), 0) != CURLUE_OK ||
      curl_url_set(handle.get(), CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
          CURLUE_OK)
    return failure(ErrorCode::io, "the store redirects to what is not a URL");
  auto target = from_handle(handle.get());
  if (!target || target->scheme == "file" || (scheme == "https" && target->scheme != "https"))
    return failure(ErrorCode::io, "the store redirects away from " + scheme);
  target->user.clear();
  target->password.clear();
  return target;
}

Result<Url> Url::sibling(std::string_view relative) const {
  TRY(check_relative(relative));
  Url url = *this;
  url.path = path.substr(0, path.rfind('/') + 1) + percent_encoded(relative);
  if (is_signed(query)) url.query.clear();
  return url;
}

std::string percent_encoded(std::string_view text) {
  return encoded(text, [](char c) {
    return is_letter_or_digit(c) || std::string_view("-._~/").find(c) != std::string_view::npos;
  });
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && text.size() - i > 2 && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Result<void> check_relative(std::string_view relative) {
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string_view segment = relative.substr(begin, end - begin);
    if (segment.empty() || segment == "." || segment == ".." || segment.find('\0') != segment.npos)
      return failure(ErrorCode::invalid_argument,
                     "the name of a file beside a URL leads out of its folder");
    if (end == relative.size()) return {};
    begin = end + 1;
  }
}

}  // namespace weightmap::remote
