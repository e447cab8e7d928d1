// Shell patterns for the names of tensors, as `weightmap ls FILE PATTERN` takes them and as the
// lines of an order file (tensor_order.hpp) hold them.
//
//   *       matches any number of bytes, including none
//   ?       matches one byte
//   [abc]   matches one of these bytes; [a-z] one of a range; [!abc] or [^abc] one that is not
//           listed. A "]" that comes first is listed; a "[" that no "]" follows stands for itself.
//   \xHH    matches the byte of this hexadecimal number of two digits
//   \c      matches any other character c: \* is an asterisk, \\ a backslash
//
// The whole name must match, and a dot is an ordinary byte. A backslash at the very end stands for
// nothing, so the pattern \ matches the empty name. Matching takes, at worst, time in proportion to
// the length of the name times that of the pattern, and allocates nothing.
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
  // Every text is a pattern, so this does not fail.
  explicit NamePattern(std::string_view text);

  // Returns whether the pattern may match more than one name.
  bool has_wildcards() const noexcept { return has_wildcards_; }
  // Returns the one name that matches. Precondition: !has_wildcards().
  const std::string& name() const noexcept { return name_; }

  bool matches(std::string_view name) const noexcept;

 private:
  struct Part {
    std::bitset<256> bytes;  // those that may stand here
    bool is_run = false;     // any number of any bytes
  };
  std::vector<Part> parts_;  // empty without wildcards
  std::string name_;
  bool has_wildcards_ = false;
};

}  // namespace weightmap
