// Shell patterns for the names of tensors; match_tensors() has their language.
//
// The worst-case time of a match is proportional to the length of the name times that of the
// pattern; it allocates nothing.
#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/version.hpp"

namespace weightmap {

// Const members may be called from any thread.
class WEIGHTMAP_API NamePattern {
 public:
  // Every text is a valid pattern.
  explicit NamePattern(std::string_view text);

  // Returns true if the pattern may match more than one name.
  bool has_wildcards() const noexcept { return has_wildcards_; }
  // Returns the only name that matches. Precondition: !has_wildcards().
  const std::string& name() const noexcept { return name_; }

  bool matches(std::string_view name) const noexcept;

 private:
  struct Part {
    std::bitset<256> bytes;  // the accepted bytes
    bool is_run = false;     // any number of any bytes
  };
  std::vector<Part> parts_;  // empty without wildcards
  std::string name_;
  bool has_wildcards_ = false;
};

}  // namespace weightmap
