#include "tools/remote/remote_file.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace weightmap::cli {

bool names_remote_file(const std::string& text) noexcept {
  const std::size_t end = text.find("://");
  const std::string_view scheme = std::string_view(text).substr(0, end);
  return end != std::string::npos && !scheme.empty() &&
         std::ranges::all_of(scheme, [](unsigned char c) { return std::isalnum(c) != 0; });
}

#ifdef WEIGHTMAP_HAS_REMOTE
Result<std::unique_ptr<RangeSource>> open_remote(const std::string& url,
                                                 const RemoteOptions& options) {
  return open_url(url, options);
}
#else
Result<std::unique_ptr<RangeSource>> open_remote(const std::string&, const RemoteOptions&) {
  return failure(ErrorCode::unsupported, "this build has no remote files (libcurl)");
}
#endif

}  // namespace weightmap::cli
