// Shell patterns for the names of tensors, for `weightmap ls FILE PATTERN` and for the lines of an
// order file (warmer.hpp).
//
//   *       matches any number of bytes, including none
//   ?       matches one byte
//   [abc]   matches one of these bytes; [a-z] one of a range; [!abc] or [^abc] one that is not
//           listed. A "]" that comes first is listed; a "[" that no "]" follows stands for itself.
//   \xHH    matches the byte of this hexadecimal number of two digits
//   \c      matches any other character c: \* is an asterisk, \\ a backslash
//
// The whole name must match, and a dot is an ordinary byte. A backslash at the very end is ignored,
// so the pattern \ matches the empty name. The worst-case time of a match is proportional to the
// length of the name times that of the pattern; it allocates nothing.
#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;

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

// Returns the positions in Checkpoint::tensors() of all tensors whose names match a pattern, in
// file order. A literal name matches, too, even with wildcard characters. May be called from any
// thread.
WEIGHTMAP_API std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint,
                                                     std::string_view pattern);

}  // namespace weightmap
