// The spelling of keys in a tensor's name.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/base/value/tree.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

// The text of a key in a joined name: a string as it is, an integer in decimal, others by kind.
class KeyText {
 public:
  KeyText(const value::Tree& tree, const value::Cell& key) noexcept
      : is_integer_(value::kind_of(key) == Value::Kind::integer) {
    if (value::kind_of(key) == Value::Kind::string)
      borrowed_ = tree.text(key.payload, key.count);
    else
      spell(key);
  }
  std::string_view text() const noexcept {
    return is_integer_ ? std::string_view{digits_, length_} : borrowed_;
  }
  bool is_integer() const noexcept { return is_integer_; }

 private:
  void spell(const value::Cell& key) noexcept;

  std::string_view borrowed_;
  bool is_integer_;
  char digits_[24];
  std::size_t length_ = 0;
};

}  // namespace weightmap::torch
