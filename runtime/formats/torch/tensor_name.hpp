// The names of tensors: the keys on the way to them, joined by dots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
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

// Returns an empty name for TensorSpec::is_root.
std::string joined_name(const value::Tree& tree, const std::vector<PathNode>& paths,
                        std::uint32_t path, const value::Cell& key);

}  // namespace weightmap::torch
