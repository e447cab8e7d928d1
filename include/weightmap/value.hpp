// The value tree of a checkpoint, such as that of its pickle: the file's content as plain data.
// Nothing was called to make it.
//
// A Value is a small cursor into a tree that the Checkpoint owns. Copy it freely and use it from
// any thread until the Checkpoint is destroyed. Strings point into the tree. Values may be shared
// (the same list reached by two paths) and a hostile file may contain cycles, so bound every walk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>

#include "weightmap/export.hpp"

namespace weightmap {

namespace value {
class Tree;
struct Cell;
}  // namespace value

class WEIGHTMAP_API Value {
 public:
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,      // fits 64 bits
    big_integer,  // any other integer
    real,
    string,      // UTF-8; lone surrogates are possible ("surrogatepass")
    bytes,       // also a Python 2 str that is not UTF-8
    byte_array,  // Python's mutable bytes
    tuple,
    list,
    dict,
    set,
    frozen_set,
    global,  // a name such as torch.float32 or collections.OrderedDict; never looked up
    object,  // callable(*arguments) that was not called, with the items and the state that the
             // pickle adds: OrderedDict, tensors, instances of any class
    persistent_id,  // a reference to something outside the pickle, here a storage
  };

  // A value of kind none.
  Value() noexcept = default;

  Kind kind() const noexcept;
  bool is_none() const noexcept { return kind() == Kind::none; }

  // These return nullopt if the value is of another kind.
  std::optional<bool> boolean() const noexcept;
  std::optional<std::int64_t> integer() const noexcept;
  std::optional<double> real() const noexcept;
  std::optional<std::string_view> string() const noexcept;
  std::optional<std::span<const std::byte>> bytes() const noexcept;  // also for byte_array
  // Little-endian two's complement, as in the pickle.
  std::optional<std::span<const std::byte>> big_integer() const noexcept;

  // tuple, list, set, frozen_set, object: number of elements. dict: 0.
  std::size_t size() const noexcept;
  // dict, object: number of key/value pairs (duplicates included). Others: 0.
  std::size_t item_count() const noexcept;

  // Iterates over elements (of tuple, list, set, frozen_set, object) or items (of dict, object) in
  // file order. Constant time per step.
  class Iterator;
  class ItemIterator;
  template <class I>
  struct Range {
    I first;
    I last;
    I begin() const noexcept { return first; }
    I end() const noexcept { return last; }
  };
  Range<Iterator> elements() const noexcept;
  Range<ItemIterator> items() const noexcept;

  // Element `index`; constant time for a tuple. Precondition: index < size().
  Value operator[](std::size_t index) const noexcept;
  // The value of the last item with this string key; linear. nullopt if there is none.
  std::optional<Value> find(std::string_view key) const noexcept;

  // global: "torch._utils" and "_rebuild_tensor_v2". Others: empty.
  std::string_view module() const noexcept;
  std::string_view name() const noexcept;

  // object: the callable, its arguments, and the state that BUILD would set. The callable is a
  // global, or an object that stands for getattr(global, name). For an object made by NEWOBJ it is
  // the class. A call with keyword arguments (NEWOBJ_EX) is one of copyreg.__newobj_ex__ with three
  // arguments: the class, a tuple, and a dict. Others: none.
  Value callable() const noexcept;
  Value arguments() const noexcept;
  std::optional<Value> state() const noexcept;
  // object: made by NEWOBJ, not by REDUCE.
  bool is_new_object() const noexcept;

  // persistent_id: the id, for a storage the tuple ("storage", type, key, location, numel).
  Value persistent_id() const noexcept;

  // object: the position of the call in the pickle, which no other object shares. Others: 0.
  std::uint32_t position() const noexcept;
  // list, dict, set, frozen_set, object: the position in the pickle at which it last got elements,
  // items or a state; 0 if it never did. If a call's argument was changed after the call, its
  // callable was not meant to see the change. Others: 0.
  std::uint32_t changed_at() const noexcept;
  // object: the position at which a dict that is its state, or one of two in a tuple, was changed
  // after the state was set. The object has a copy without the change. Others: nullopt.
  std::optional<std::uint32_t> state_changed_at() const noexcept;

  // True for the same node: two values that are one object in the pickle (a list reached twice).
  bool is_same_as(const Value& other) const noexcept {
    return tree_ == other.tree_ && words_ == other.words_;
  }
  // Equal for the same node, for hash tables of nodes together with is_same_as().
  std::size_t hash() const noexcept {
    return static_cast<std::size_t>((words_[1] / 8 + words_[0]) * 0x9E3779B97F4A7C15u);
  }
  // False if no other value refers to this one, so that a walk need not remember it.
  bool may_be_shared() const noexcept;

  // For use in the library.
  Value(const value::Tree* tree, const value::Cell& cell) noexcept;
  value::Cell cell() const noexcept;
  const value::Tree* tree() const noexcept { return tree_; }

 private:
  const value::Tree* tree_ = nullptr;
  std::array<std::uint64_t, 2> words_{};
};

// "dict", "string", ...
WEIGHTMAP_API std::string_view to_string(Value::Kind kind) noexcept;

class WEIGHTMAP_API Value::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;  // returns values, not references
  using iterator_concept = std::forward_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = Value;
  Value operator*() const noexcept;
  Iterator& operator++() noexcept;
  Iterator operator++(int) noexcept {
    const Iterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Iterator& other) const noexcept { return left_ == other.left_; }

 private:
  friend class Value;
  Value parent_;
  const void* chunk_ = nullptr;
  std::size_t at_ = 0;    // position within the chunk, or the index for a tuple
  std::size_t left_ = 0;  // elements still to come
};

class WEIGHTMAP_API Value::ItemIterator {
 public:
  using iterator_category = std::input_iterator_tag;  // returns values, not references
  using iterator_concept = std::forward_iterator_tag;
  using value_type = std::pair<Value, Value>;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = std::pair<Value, Value>;
  std::pair<Value, Value> operator*() const noexcept;
  ItemIterator& operator++() noexcept;
  ItemIterator operator++(int) noexcept {
    const ItemIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const ItemIterator& other) const noexcept { return left_ == other.left_; }

 private:
  friend class Value;
  const value::Tree* tree_ = nullptr;
  const void* chunk_ = nullptr;
  std::size_t at_ = 0;
  std::size_t left_ = 0;
};

}  // namespace weightmap

template <class I>
inline constexpr bool std::ranges::enable_view<weightmap::Value::Range<I>> = true;
template <class I>
inline constexpr bool std::ranges::enable_borrowed_range<weightmap::Value::Range<I>> = true;
