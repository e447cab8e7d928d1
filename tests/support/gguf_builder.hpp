// GGUF files written out as bytes, also ones that lie.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::test {

class GgufBuilder {
 public:
  enum Type : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64
  };

  explicit GgufBuilder(bool is_big_endian = false) : is_big_endian_(is_big_endian) {}

  // The bytes of a number in the order of the file.
  template <class T>
  std::string number(T value) const {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    if (is_big_endian_ != (std::endian::native == std::endian::big))
      std::reverse(bytes.begin(), bytes.end());
    return bytes;
  }
  std::string text(std::string_view text) const {
    return number<std::uint64_t>(text.size()) + std::string(text);
  }
  std::string list(std::uint32_t type, std::uint64_t count, const std::string& elements) const {
    return number(type) + number(count) + elements;
  }

  GgufBuilder& pair(std::string_view key, std::uint32_t type, const std::string& value) {
    pairs_ += text(key) + number(type) + value;
    ++pair_count;
    return *this;
  }
  // Its description alone.
  GgufBuilder& describe(std::string_view name, const std::vector<std::int64_t>& ne,
                        std::int32_t type, std::uint64_t offset) {
    tensors_ += text(name) + number(static_cast<std::uint32_t>(ne.size()));
    for (const std::int64_t size : ne) tensors_ += number(size);
    tensors_ += number(type) + number(offset);
    ++tensor_count;
    return *this;
  }
  // With its bytes, which are padded.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::int64_t>& ne, std::int32_t type,
                      const std::string& content) {
    describe(name, ne, type, data_.size());
    data_ += content;
    data_.resize(rounded(data_.size()));
    return *this;
  }
  // Adds the key, too.
  GgufBuilder& align(std::uint32_t alignment) {
    alignment_ = alignment;
    return pair("general.alignment", u32, number(alignment));
  }
  GgufBuilder& split(std::uint16_t number_of_it, std::uint16_t count, std::int32_t tensors) {
    return pair("split.no", u16, number(number_of_it))
        .pair("split.count", u16, number(count))
        .pair("split.tensors.count", i32, number(tensors));
  }

  std::string header() const {
    return "GGUF" + number(version) + number(tensor_count) + number(pair_count) + pairs_ + tensors_;
  }
  std::size_t data_begin() const { return rounded(header().size()); }
  std::string file() const {
    std::string bytes = header();
    if (!data_.empty() || !tensors_.empty()) bytes.resize(rounded(bytes.size()));
    return bytes + data_;
  }

  std::uint32_t version = 3;
  std::int64_t tensor_count = 0;
  std::int64_t pair_count = 0;

 private:
  std::size_t rounded(std::size_t size) const {
    return (size + alignment_ - 1) / alignment_ * alignment_;
  }

  bool is_big_endian_;
  std::uint32_t alignment_ = 32;
  std::string pairs_;
  std::string tensors_;
  std::string data_;
};

}  // namespace weightmap::test
