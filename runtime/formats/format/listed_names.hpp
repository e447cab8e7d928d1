// The names of an archive's members in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/bytes/escape.hpp"

namespace weightmap::format {

// As tar has names of members when it is given a folder: "./model_weights.ckpt".
inline std::string_view without_dot(std::string_view name) noexcept {
  return name.starts_with("./") ? name.substr(2) : name;
}

// As many names as a message has room for.
class ListedNames {
 public:
  static constexpr std::size_t most = 8;

  void add(std::string_view name) {
    if (++count_ <= most) text_ += (count_ == 1 ? "" : ", ") + bytes::quote(without_dot(name), 80);
  }
  std::size_t count() const noexcept { return count_; }
  std::string text() const {
    return text_ + (count_ > most ? " and " + std::to_string(count_ - most) + " more" : "");
  }

 private:
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace weightmap::format
