// The value tree of a checkpoint, such as that of its pickle: the file's content as plain data,
// which is read, searched, or built to be written. Nothing was called to make it.
//
// A Value is a small cursor into a tree that the Checkpoint owns. Copy it freely and use it from
// any thread until the Checkpoint is destroyed. Strings point into the tree. Values may be shared
// (the same list reached by two paths) and a hostile file may contain cycles, so bound every walk.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

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

// One step of the path from the root of the value tree to a tensor: a string key, or an integer (a
// list or tuple index, or an integer key). Borrows the key.
class PathPart {
 public:
  PathPart(std::string_view key) noexcept : text_(key) {}
  PathPart(const char* key) noexcept : text_(key) {}
  PathPart(const std::string& key) noexcept : text_(key) {}
  PathPart(std::integral auto index) noexcept
      : index_(static_cast<std::int64_t>(index)), is_integer_(true) {}

  bool is_integer() const noexcept { return is_integer_; }
  std::int64_t integer() const noexcept { return index_; }  // 0 for a key
  std::string_view key() const noexcept { return text_; }   // empty for an integer

  friend bool operator==(const PathPart& a, const PathPart& b) noexcept = default;

 private:
  std::string_view text_;
  std::int64_t index_ = 0;
  bool is_integer_ = false;
};

// Finds values in a value tree by their keys.
//
//   const auto epoch = weightmap::find_value(checkpoint->root(), "epoch");
//   if (epoch && epoch->value.integer()) resume(*epoch->value.integer());
//
// A key is one of a dict, an index of a list or tuple, or a key of an object's items or state, as
// in paths of tensors. What a pickled torch.nn.Module has in `_parameters`, `_buffers` and
// `_modules` is under the module itself as well, where its state_dict() names it. Results borrow
// from the tree. All functions may be called from any thread.

struct FoundValue {
  Value value;
  std::vector<PathPart> path;  // borrows from the tree
};

// Finds a value by name: keys joined by dots, "optimizer.param_groups.0.lr". A key itself may
// contain dots. The last of two values with one name wins, as in Python. nullopt if there is no
// such value, or if a bounded search cannot tell.
WEIGHTMAP_API std::optional<FoundValue> find_value(const Value& root, std::string_view name);
// Finds a value by path.
WEIGHTMAP_API std::optional<Value> find_value(const Value& root, std::span<const PathPart> path);

// Returns the name for a path: its parts joined by dots.
WEIGHTMAP_API std::string name_of(std::span<const PathPart> path);

// Calls `visit` for each value under a key of `parent`, in file order. Values with other keys, such
// as tuples, are skipped.
WEIGHTMAP_API void for_each_child(const Value& parent,
                                  const std::function<void(const PathPart&, const Value&)>& visit);

// Returns the name of its type in Python: "int", "dict", "argparse.Namespace".
WEIGHTMAP_API std::string type_name_of(const Value& value);

// Builds the value tree of a checkpoint that is to be written (checkpoint_writer.hpp).
//
//   weightmap::ValueBuilder& build = writer.values();
//   const weightmap::Value root = build.dict(std::array{build.string("epoch"), build.integer(3)});
//
// A Value from a builder can be passed to the same builder, as part of another, and to its writer;
// its content can be read once it is written. Children are made before their container, or given
// to it afterwards (fill()), as where something holds itself. A Value used twice is one shared
// object in the file. Text is copied. Not thread-safe.
class WEIGHTMAP_API ValueBuilder {
 public:
  // Nesting of containers and calls; the default limit of Checkpoint::open() is the same.
  static constexpr std::uint32_t max_depth = 1000;

  ValueBuilder();
  ValueBuilder(ValueBuilder&&) noexcept;
  ValueBuilder& operator=(ValueBuilder&&) noexcept;
  ~ValueBuilder();

  Value none() const noexcept { return {}; }
  Value boolean(bool value);
  Value integer(std::int64_t value);
  // Little-endian two's complement, of any length.
  Value big_integer(std::span<const std::byte> digits);
  Value real(double value);
  Value string(std::string_view utf8);
  Value bytes(std::span<const std::byte> content);
  Value byte_array(std::span<const std::byte> content);
  Value tuple(std::span<const Value> elements);
  Value list(std::span<const Value> elements);
  Value set(std::span<const Value> elements);
  Value frozen_set(std::span<const Value> elements);
  Value dict(std::span<const Value> items);  // key, value, key, value ...
  // Makes a name such as torch.float32, for a class, a function or a constant.
  Value global(std::string_view module, std::string_view name);
  Value persistent_id(const Value& id);

  // A call that loaders of the checkpoint will make, callable(*arguments), and the elements, items
  // and state that are added to its result.
  struct Call {
    Value callable;
    Value arguments;  // a tuple
    std::span<const Value> elements = {};
    std::span<const Value> items = {};  // key, value, key, value ...
    std::optional<Value> state = {};
    bool is_new_object = false;  // callable.__new__(callable, *arguments)
  };
  Value object(const Call& call);

  // What is added, once, to a list (elements), a dict (items) or an object (all of it) that was
  // made without any.
  struct Contents {
    std::span<const Value> elements = {};
    std::span<const Value> items = {};
    std::optional<Value> state = {};
  };
  void fill(const Value& made, const Contents& contents);

  // Fails with limit_exceeded if a value could not be added because it nests deeper than max_depth.
  // The writer checks this, too.
  Result<void> check() const;

 private:
  friend class CheckpointWriter;
  struct WEIGHTMAP_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap

template <class I>
inline constexpr bool std::ranges::enable_view<weightmap::Value::Range<I>> = true;
template <class I>
inline constexpr bool std::ranges::enable_borrowed_range<weightmap::Value::Range<I>> = true;
