// Pickles of tensors, opcode by opcode.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace weightmap::test {

using namespace std::string_literals;

inline std::string u32(std::uint32_t value) {
  std::string text(4, '\0');
  std::memcpy(text.data(), &value, 4);
  return text;
}
inline std::string unicode(const std::string& text) {
  return "X" + u32(static_cast<std::uint32_t>(text.size())) + text;
}

// Writes the opcodes that Python's pickler writes for torch tensors, with its memo numbering.
class TensorPickle {
 public:
  TensorPickle() { text_ = "\x80\x02}q"s + '\0' + "("; }

  struct Tensor {
    std::vector<std::int64_t> sizes{4, 4};
    std::vector<std::int64_t> strides{4, 1};
    std::int64_t numel = 16;
    std::int64_t offset = 0;
    bool requires_grad = false;
    bool is_named = true;
    std::string key_get = "";      // instead of writing the key
    std::string extra = "";        // before the last TUPLE
    bool spell_out_empty = false;  // an empty tuple as MARK TUPLE PUT
  };

  TensorPickle& add(const std::string& name, const std::string& key, const Tensor& tensor) {
    if (tensor.is_named) {
      text_ += unicode(name) + put();
      names.push_back(next_ - 1);
    }
    text_ += first_ ? "ctorch._utils\n_rebuild_tensor_v2\n" + put(rebuild_) : get(rebuild_);
    text_ += "((";
    text_ += first_ ? unicode("storage") + put(tag_) : get(tag_);
    text_ += first_ ? "ctorch\nFloatStorage\n" + put(type_) : get(type_);
    text_ += tensor.key_get.empty() ? unicode(key) + put() : tensor.key_get;
    if (tensor.key_get.empty()) keys.push_back(next_ - 1);
    text_ += first_ ? unicode("cpu") + put(location_) : get(location_);
    text_ += integer(tensor.numel) + "t" + put() + "Q" + integer(tensor.offset);
    // One statement for each PUT: the order of the ids is the order of evaluation.
    text_ += tuple(tensor.sizes, tensor.spell_out_empty);
    text_ += tuple(tensor.strides, tensor.spell_out_empty);
    text_ += tensor.requires_grad ? "\x88" : "\x89";
    text_ += first_ ? "ccollections\nOrderedDict\n" + put(ordered_dict_) : get(ordered_dict_);
    text_ += ")R" + put();
    text_ += tensor.extra + "t" + put();
    text_ += "R" + put();
    tensors.push_back(next_ - 1);
    first_ = false;
    return *this;
  }
  TensorPickle& add(const std::string& name, const std::string& key) {
    return add(name, key, Tensor{});
  }
  // The next PUT has this id.
  TensorPickle& number_from(std::uint32_t id) {
    next_ = id;
    return *this;
  }
  TensorPickle& raw(const std::string& opcodes) {
    text_ += opcodes;
    return *this;
  }
  // The packed form needs a kilobyte behind each run; real files have it.
  std::string finish() const { return text_ + "u." + std::string(padding, '\0'); }
  static constexpr std::size_t padding = 1100;

  std::string put() { return put_id(next_++); }
  std::string get(std::uint32_t id) const {
    return id < 256 ? "h"s + static_cast<char>(id) : "j" + u32(id);
  }
  std::vector<std::uint32_t> names, keys, tensors;

 private:
  std::string put(std::uint32_t& id) {
    id = next_++;
    return put_id(id);
  }
  static std::string put_id(std::uint32_t id) {
    return id < 256 ? "q"s + static_cast<char>(id) : "r" + u32(id);
  }
  static std::string integer(std::int64_t value) {
    if (value >= 0 && value < 256) return "K"s + static_cast<char>(value);
    if (value >= 0 && value < 65536)
      return "M"s + static_cast<char>(value & 0xFF) + static_cast<char>(value >> 8);
    if (value == static_cast<std::int32_t>(value))
      return "J" + u32(static_cast<std::uint32_t>(value));
    std::string digits(8, '\0');
    std::memcpy(digits.data(), &value, 8);
    return "\x8a\x08" + digits;
  }
  std::string tuple(const std::vector<std::int64_t>& values, bool spell_out_empty) {
    if (values.empty()) return spell_out_empty ? "(t" + put() : ")";
    std::string text = values.size() > 3 ? "(" : "";
    for (std::int64_t value : values) text += integer(value);
    text += values.size() > 3 ? 't' : static_cast<char>(0x84 + values.size());
    return text + put();
  }

  std::string text_;
  std::uint32_t next_ = 1;
  bool first_ = true;
  std::uint32_t rebuild_ = 0, tag_ = 0, type_ = 0, location_ = 0, ordered_dict_ = 0;
};

}  // namespace weightmap::test
