#include "tools/remote/remote_file.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

namespace weightmap::cli {

bool names_remote_file(const std::string& text) noexcept {
  const std::size_t end = text.find("://");
  const std::string_view scheme = std::string_view(text).substr(0, end);
  return end != std::string::npos && !scheme.empty() &&
         std::ranges::all_of(scheme, [](unsigned char c) { return std::isalnum(c) != 0; });
}

std::string remote_file_name(const RangeSource& source) {
  const std::string& url = source.name();
  std::string name;
  for (std::size_t i = url.rfind('/') + 1; i < url.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = url.data() + std::min(i + 1, url.size());
    const char* const end = url.data() + std::min(i + 3, url.size());
    if (url[i] == '%' && std::from_chars(digits, end, byte, 16).ptr == digits + 2) {
      name += static_cast<char>(byte);
      i += 2;
    } else {
      name += url[i];
    }
  }
  return name;
}

#ifdef WEIGHTMAP_HAS_REMOTE
Result<std::unique_ptr<RangeSource>> open_remote(const std::string& url,
                                                 const RemoteOptions& options) {
  return open_url(url, options);
}

std::string version_name(const std::string& file, const RemoteVersion& version) {
  return version_file_name(file, version);
}
#else
namespace {

tl::unexpected<Error> no_remote_files() {
  return failure(ErrorCode::unsupported, "this build has no remote files (libcurl)");
}

}  // namespace

Result<std::unique_ptr<RangeSource>> open_remote(const std::string&, const RemoteOptions&) {
  return no_remote_files();
}

std::string version_name(const std::string&, const RemoteVersion&) { return {}; }
#endif

}  // namespace weightmap::cli
