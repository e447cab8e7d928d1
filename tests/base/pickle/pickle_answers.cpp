// Reads pickles from its input, { u32 length | bytes } each, and prints a line for each of them:
// "refused", or the tree as words, as verdicts_test.py makes them of what Python reads.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/pickle/parse.hpp"
#include "weightmap/value.hpp"

namespace {

using namespace weightmap;

constexpr std::size_t most_words = 5000;  // small pickles can be trees of any size

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}
std::string hex(std::string_view text) { return hex(std::as_bytes(std::span(text))); }

// Without bytes that only repeat the sign.
std::span<const std::byte> shortest(std::span<const std::byte> number) {
  const auto is_sign = [&number](std::size_t i) {
    const bool is_negative = (number[i - 1] & std::byte{0x80}) != std::byte{};
    return number[i] == (is_negative ? std::byte{0xff} : std::byte{});
  };
  std::size_t length = number.size();
  while (length > 1 && is_sign(length - 1)) --length;
  if (length == 1 && number[0] == std::byte{}) length = 0;
  return number.first(length);
}

class TreeWords {
 public:
  explicit TreeWords(const Value& root) { add(root); }
  const std::string& text() const { return text_; }

 private:
  void word(const std::string& of) {
    text_ += of;
    text_ += ' ';
    ++words_;
  }

  void add(const Value& value) {
    using enum Value::Kind;
    if (words_ > most_words) return;
    switch (value.kind()) {
      case none:
        return word("None");
      case boolean:
        return word(*value.boolean() ? "True" : "False");
      case integer: {
        const std::int64_t number = *value.integer();
        return word("i" + hex(shortest(std::as_bytes(std::span(&number, 1)))));
      }
      case big_integer:
        return word("i" + hex(shortest(*value.big_integer())));
      case real: {
        const double number = *value.real();
        return word("d" + hex(std::as_bytes(std::span(&number, 1))));
      }
      case string:
        return word("s" + hex(*value.string()));
      case bytes:
        return word("b" + hex(*value.bytes()));
      case byte_array:
        return word("a" + hex(*value.bytes()));
      case global:
        return word("g" + hex(value.module()) + "." + hex(value.name()));
      default:
        return add_node(value);
    }
  }

  void add_node(const Value& value) {
    if (value.kind() != Value::Kind::tuple && value.kind() != Value::Kind::persistent_id) {
      const auto [known, is_new] = seen_.try_emplace(value, seen_.size());
      if (!is_new) return word("#" + std::to_string(known->second));
    }
    word(std::string(to_string(value.kind())));
    if (value.kind() == Value::Kind::persistent_id) return add(value.persistent_id());
    if (value.kind() == Value::Kind::object) {
      word(value.is_new_object() ? "new" : "call");
      add(value.callable());
      add(value.arguments());
    }
    word(std::to_string(value.size()));
    for (const Value element : value.elements()) add(element);
    word(std::to_string(value.item_count()));
    for (const auto& [key, item] : value.items()) {
      add(key);
      add(item);
    }
    if (value.state()) {
      word("state");
      add(*value.state());
    }
  }

  struct Hash {
    std::size_t operator()(const Value& value) const { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const { return a.is_same_as(b); }
  };
  std::unordered_map<Value, std::size_t, Hash, Same> seen_;
  std::string text_;
  std::size_t words_ = 0;
};

std::string answer(std::string_view pickle) {
  bytes::Buffer memory(pickle.size(), *std::pmr::new_delete_resource());
  if (!pickle.empty()) std::memcpy(memory.data(), pickle.data(), pickle.size());
  const std::span<const std::byte> span(memory.data(), memory.size());
  const auto tree = pickle::parse(std::move(memory), span, 0, {std::uint64_t{16} << 20, 200},
                                  *std::pmr::new_delete_resource());
  if (!tree) return "refused: " + tree.error().message;
  return TreeWords(Value(tree->get(), (*tree)->root())).text();
}

}  // namespace

int main() {
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  std::string_view rest = input;
  while (rest.size() >= 4) {
    std::uint32_t length;
    std::memcpy(&length, rest.data(), sizeof length);
    std::puts(answer(rest.substr(4, length)).c_str());
    rest.remove_prefix(std::min<std::size_t>(rest.size(), 4 + std::size_t{length}));
  }
}
