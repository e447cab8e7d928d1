// Shell patterns for the names of tensors: what `weightmap ls FILE PATTERN` takes, and what a line
// of an order file (tensor_order.hpp) holds.
//
//   *       any bytes, also none
//   ?       one byte
//   [abc]   one of these; [a-z] one of a range; [!abc] or [^abc] one that is none of these. A "]"
//           that comes first is one of them; a "[" that no "]" follows is itself.
//   \xHH    the byte of this hexadecimal number, two digits, whatever it is
//   \c      any other character c, itself: \* is an asterisk, \\ a backslash
//
// The whole name must match; a dot is nothing special. A backslash at the very end is nothing, so
// that \ alone is the empty name. Matching takes time in proportion to the length of the name times
// that of the pattern, at worst, and no memory.
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"

namespace weightmap {

// Const members may be called from any thread.
class WEIGHTMAP_API NamePattern {
 public:
  // Any text is a pattern.
  explicit NamePattern(std::string_view text);

  // Whether it may match more than one name.
  bool has_wildcards() const noexcept { return has_wildcards_; }
  // The one name that matches. Precondition: !has_wildcards().
  const std::string& name() const noexcept { return name_; }

  bool matches(std::string_view name) const noexcept;

 private:
  struct Part {
    std::bitset<256> bytes;  // that may stand here
    bool is_run = false;     // any number of any bytes
  };
  std::vector<Part> parts_;  // empty without wildcards
  std::string name_;
  bool has_wildcards_ = false;
};

}  // namespace weightmap
