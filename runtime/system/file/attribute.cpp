#include "runtime/system/file/attribute.hpp"

#include <sys/xattr.h>

#include <array>
#include <cstddef>

namespace weightmap::os {

bool set_attribute(int descriptor, const std::string& name, const std::string& text) noexcept {
  return ::fsetxattr(descriptor, name.c_str(), text.data(), text.size(), 0) == 0;
}

std::optional<std::string> attribute_of(const std::filesystem::path& path,
                                        const std::string& name) {
  std::array<char, 4096> text;  // what an attribute of some file systems may have at most
  const ssize_t size = ::getxattr(path.c_str(), name.c_str(), text.data(), text.size());
  if (size < 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(size));
}

}  // namespace weightmap::os
