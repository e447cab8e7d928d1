#include "runtime/base/bytes/about_file.hpp"

#include <utility>

#include "runtime/base/bytes/escape.hpp"

namespace weightmap {

std::string shown_name(const std::filesystem::path& path) {
  return bytes::escape(path.native(), 4096);
}

tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path) {
  if (error.file.empty()) error.file = shown_name(path);
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> about_shown(Error error, const std::string& name) {
  if (error.file.empty()) error.file = name;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap
