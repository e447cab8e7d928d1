// The memory layout of the value tree: 16-byte cells in one arena.
//
// A Cell holds a small value itself and points to a large one. By Value::Kind:
//
//   none                     -
//   boolean                  payload = 0 or 1
//   integer, real            payload = the 64 bits
//   string, bytes,           payload = Tree::position_of() the text, count = bytes; the text stays
//   byte_array, big_integer  in the pickle, except where escapes had to be decoded
//   tuple                    payload -> Cell[count]
//   list, dict, set,         payload -> Sequence (a dict holds key, value, key, value ...)
//   frozen_set
//   global                   payload -> Global
//   object                   payload -> Object
//   persistent_id            payload -> Cell
//
// Cell::depth is the nesting below and including a tuple or persistent id; the others know their
// own. Of a text it is python_2_text if Python 2 wrote it, as a str, which may be bytes. A cell
// with part != whole_value is a piece of a PackedCall, which payload points to instead: see there.
// Every cell is reachable from the root or garbage; the arena frees all of them at once, so nothing
// recurses, however deep a file nests.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/arena.hpp"
#include "weightmap/value.hpp"

namespace weightmap::value {

struct Cell {
  std::uint8_t kind = 0;  // a Value::Kind
  std::uint8_t part = 0;
  std::uint16_t depth = 0;
  std::uint32_t count = 0;
  std::uint64_t payload = 0;
};

inline constexpr std::uint16_t python_2_text = 1;

struct Chunk {
  Chunk* next;
  std::uint64_t count;  // cells behind this header
  const Cell* cells() const noexcept { return reinterpret_cast<const Cell*>(this + 1); }
  Cell* cells() noexcept { return reinterpret_cast<Cell*>(this + 1); }
};

// Cells that one APPENDS or SETITEMS added: one chunk per batch (a pickler writes batches of 1000).
struct Sequence {
  Chunk* first = nullptr;
  Chunk* last = nullptr;
  std::uint64_t count = 0;         // cells in all chunks
  std::uint32_t depth = 1;         // nesting below and including this container
  mutable std::uint32_t mark = 0;  // for a walk over the tree before it is shared
  std::uint32_t changed_at = 0;    // of the last chunk: position of its opcode in the pickle
};

// Iterates over the cells of a sequence.
class CellCursor {
 public:
  CellCursor() = default;
  // nullptr is an empty sequence.
  explicit CellCursor(const Sequence* sequence) noexcept
      : chunk_(sequence ? sequence->first : nullptr) {}
  // Returns the next cell, or nullptr at the end.
  const Cell* next() noexcept {
    if (chunk_ == nullptr) return nullptr;
    const Cell* cell = chunk_->cells() + at_;
    if (++at_ == chunk_->count) {
      chunk_ = chunk_->next;
      at_ = 0;
    }
    return cell;
  }
  // Returns the next contiguous cells, which are the rest of the batch; none at the end.
  std::span<const Cell> piece() const noexcept {
    if (chunk_ == nullptr) return {};
    return {chunk_->cells() + at_, static_cast<std::size_t>(chunk_->count - at_)};
  }
  // Skips so many of them.
  void skip(std::size_t count) noexcept {
    if (count == 0) return;
    at_ += count;
    if (at_ == chunk_->count) {
      chunk_ = chunk_->next;
      at_ = 0;
    }
  }

 private:
  const Chunk* chunk_ = nullptr;
  std::uint64_t at_ = 0;
};

struct Global {
  std::string_view module;
  std::string_view name;
  std::uint32_t position;  // of the opcode in the pickle
};

struct Object {
  Cell callable;
  Cell arguments;
  Cell state;  // kind none and has_state false until BUILD
  bool has_state;
  bool is_new_object;  // NEWOBJ
  std::uint32_t position;
  std::uint32_t depth;             // as in Sequence
  std::uint32_t changed_at;        // of the last elements, items or state; as in Sequence
  std::uint32_t state_at;          // position of BUILD
  Sequence* elements;              // from APPENDS; nullptr if there are none
  Sequence* items;                 // from SETITEMS; likewise
  mutable std::uint32_t mark = 0;  // as in Sequence
};

// The parts that the calls of one usual run share: everything that a pickler writes once and
// fetches from the memo afterwards.
struct PackedHeader {
  static constexpr std::uint32_t no_id = 0xFFFFFFFF;
  struct Ids {  // memo ids by which the next call is recognised
    std::uint32_t callable, tag, type, location, hooks_callable, extra;
    bool operator==(const Ids&) const noexcept = default;
  } ids;
  Cell callable;        // a global: the rebuild function
  Cell tag;             // "storage"
  Cell type;            // a global: the storage type
  Cell location;        // a string
  Cell hooks_callable;  // a global: OrderedDict
  Cell extra;           // v3's dtype; only if ids.extra != no_id
};

// The parts that calls for tensors of one type and shape share in addition.
struct PackedShape {
  const PackedHeader* header;
  const std::int64_t* dims;  // sizes, then strides
  std::int64_t numel;
  std::int64_t storage_offset;
  std::uint8_t size_count;
  std::uint8_t stride_count;
  std::uint8_t slot;  // below slots, by a hash of the other fields: for caches of recent shapes

  static constexpr std::size_t slots = 64;
  static constexpr std::size_t max_dims = 16;  // sizes, and as many strides

  std::span<const std::int64_t> sizes() const noexcept { return {dims, size_count}; }
  std::span<const std::int64_t> strides() const noexcept {
    return {dims + size_count, stride_count};
  }
  bool operator==(const PackedShape&) const noexcept = default;
};

// One call in the form that nearly every tensor of a checkpoint has,
//
//   callable((tag, type, key, location, numel)-as-persistent-id, offset, sizes, strides,
//            requires_grad, hooks_callable()[, extra])
//
// stored as its operands instead of as 25 cells. It represents the same tree: Value extracts the
// pieces (`Part`) on demand, and memo ids of pieces resolve to them. The form alone is recognised;
// the torch layer interprets the names.
struct PackedCall {
  static constexpr std::uint32_t no_name = 0xFFFFFFFF;
  const PackedShape* shape;
  std::uint32_t memo_base;  // first memo id of the run
  std::uint32_t position;   // of the run in the pickle
  std::uint32_t
      name_length;  // of the memoized string (a dict key) that the run began with, or no_name
  std::uint32_t key_position;
  std::uint16_t key_length;
  bool has_key_put;  // the key was written here, not fetched from the memo
  bool requires_grad;
  // True if a GET fetched one of its pieces, which may then be reached in another way as well.
  mutable bool has_shared_pieces;

  bool has_name() const noexcept { return name_length != no_name; }
  // The position of that string's text, behind an opcode and four bytes of length.
  std::uint32_t name_position() const noexcept { return position + 5; }
};
static_assert(sizeof(PackedCall) == 32);  // there is one for each tensor

enum Part : std::uint8_t {
  whole_value = 0,   // an ordinary cell
  packed_object,     // kind object: the call itself
  packed_arguments,  // kind tuple
  packed_storage,    // kind persistent_id
  packed_id,         // kind tuple: (tag, type, key, location, numel)
  packed_sizes,      // kind tuple
  packed_strides,    // kind tuple
  packed_hooks,      // kind object: hooks_callable()
};

// Owns every node of a tree and its text, which is the pickle for a parsed tree.
class Tree {
 public:
  Tree(bytes::Buffer pickle_memory, std::span<const std::byte> pickle,
       std::pmr::memory_resource& memory, std::size_t chunk_bytes, std::uint64_t budget_bytes)
      : memory_(std::move(pickle_memory)),
        pickle_(pickle),
        arena_(memory, chunk_bytes, budget_bytes) {}

  std::span<const std::byte> pickle() const noexcept { return pickle_; }
  // Releases the memory that the constructor took. Afterwards the tree may only be destroyed.
  bytes::Buffer release_pickle() && noexcept { return std::move(memory_); }
  // Returns the text at a position, which counts from the beginning of the pickle modulo 2^64:
  // decoded text lies in the arena, before or behind the pickle.
  std::string_view text(std::uint64_t position, std::uint64_t length) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(pickle_.data());
    return {reinterpret_cast<const char*>(begin + static_cast<std::uintptr_t>(position)), length};
  }
  std::uint64_t position_of(const char* text) const noexcept {
    return std::uint64_t{reinterpret_cast<std::uintptr_t>(text)} -
           reinterpret_cast<std::uintptr_t>(pickle_.data());
  }
  // True if text at this position is in the pickle itself.
  bool is_in_pickle(std::uint64_t position) const noexcept { return position < pickle_.size(); }
  Cell root() const noexcept { return root_; }
  // All globals of the stream, used or not, in file order.
  std::span<const Global* const> globals() const noexcept { return globals_; }
  std::uint64_t packed_count() const noexcept { return packed_count_; }

  // While it is made. A tree that is shared is const.
  bytes::Arena& arena() noexcept { return arena_; }
  void set_root(Cell root) noexcept { root_ = root; }
  void add_global(const Global* global) { globals_.push_back(global); }
  void add_packed(std::uint64_t count) noexcept { packed_count_ += count; }
  // What lies behind the first `length` bytes of the pickle counts for nothing.
  void cut_pickle(std::size_t length) noexcept { pickle_ = pickle_.first(length); }

 private:
  friend class Builder;
  bytes::Buffer memory_;
  std::string text_;                   // in a tree that was built
  std::span<const std::byte> pickle_;  // of text_ or the pickle
  bytes::Arena arena_;
  Cell root_;
  std::vector<const Global*> globals_;
  std::uint64_t packed_count_ = 0;
};

// Construction and access of cells, without checks.
inline Cell make_cell(Value::Kind kind, std::uint64_t payload, std::uint32_t count = 0,
                      Part part = whole_value) noexcept {
  return {static_cast<std::uint8_t>(kind), part, 0, count, payload};
}
template <class T>
Cell make_cell(Value::Kind kind, const T* target, std::uint32_t count = 0,
               Part part = whole_value) noexcept {
  return make_cell(kind, reinterpret_cast<std::uintptr_t>(target), count, part);
}
inline Cell make_integer(std::int64_t value) noexcept {
  return make_cell(Value::Kind::integer, static_cast<std::uint64_t>(value));
}
inline Value::Kind kind_of(const Cell& cell) noexcept {
  return static_cast<Value::Kind>(cell.kind);
}
template <class T>
T* target_of(const Cell& cell) noexcept {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(cell.payload));
}
// Returns the packed call of the cell, or nullptr.
inline const PackedCall* packed_call(const Cell& cell) noexcept {
  return cell.part == packed_object ? target_of<const PackedCall>(cell) : nullptr;
}

// False for a piece of a packed call to which nothing else refers.
inline bool may_be_shared(const Cell& cell) noexcept {
  return cell.part <= packed_object || target_of<const PackedCall>(cell)->has_shared_pieces;
}

// Returns the position in the pickle at which the object of this cell is made; no two objects share
// one. nullopt for cells of other kinds, and for the hooks of a packed call.
inline std::optional<std::uint32_t> position_of(const Cell& cell) noexcept {
  if (const PackedCall* call = packed_call(cell)) return call->position;
  if (kind_of(cell) != Value::Kind::object || cell.part != whole_value) return std::nullopt;
  return target_of<const Object>(cell)->position;
}

// Return the tuples (arguments) and (tag, type, key, location, numel) of a packed call.
Cell packed_arguments_cell(const PackedCall& call) noexcept;
Cell packed_id_cell(const PackedCall& call) noexcept;
// Returns the key of the latter.
inline Cell packed_key_cell(const PackedCall& call) noexcept {
  return make_cell(Value::Kind::string, call.key_position, call.key_length);
}
// Returns element `index` of a packed call's tuple cell. Precondition: index < count.
Cell packed_element(const Cell& tuple, std::size_t index) noexcept;
// Returns element `index` of any tuple cell. Precondition: index < count.
inline Cell tuple_element(const Cell& tuple, std::size_t index) noexcept {
  return tuple.part == whole_value ? target_of<const Cell>(tuple)[index]
                                   : packed_element(tuple, index);
}
// Returns the cell for memo id `memo_base + offset` of a packed call.
Cell packed_memo(const PackedCall& call, std::uint32_t offset) noexcept;
// Returns the number of memo ids that the call occupies.
std::uint32_t packed_memo_count(const PackedCall& call) noexcept;

}  // namespace weightmap::value

namespace weightmap {

inline Value::Value(const value::Tree* tree, const value::Cell& cell) noexcept
    : tree_(tree), words_(std::bit_cast<std::array<std::uint64_t, 2>>(cell)) {}
inline value::Cell Value::cell() const noexcept { return std::bit_cast<value::Cell>(words_); }

}  // namespace weightmap
