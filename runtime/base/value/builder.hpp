// Builds a value tree by hand, for formats without a pickle and for writing.
//
//   value::Builder build(memory, {budget_bytes, depth});
//   const Cell steps = build.string("steps");
//   Result<std::unique_ptr<Tree>> tree = build.finish(build.dict(std::array{steps,
//   build.integer(3)}));
//
// Children are made before the container that holds them; a cell that is used twice is one shared
// value. Text is copied. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/value/packed_shapes.hpp"
#include "runtime/base/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::value {

struct BuildLimits {
  std::uint64_t budget_bytes;  // nodes and text together
  std::uint32_t depth;         // nesting of containers and calls, at most 65535
};

// What is added to the result of a call, or to a list (elements) or dict (items).
struct Contents {
  std::span<const Cell> elements{};
  std::span<const Cell> items{};  // key, value, key, value ...
  std::optional<Cell> state{};
};

// A recorded call, callable(*arguments), which nothing executes, and the additions to its result.
struct Call {
  Cell callable;
  Cell arguments;  // a tuple
  std::span<const Cell> elements{};
  std::span<const Cell> items{};  // key, value, key, value ...
  std::optional<Cell> state{};
  bool is_new_object = false;
};

// A call in the form of PackedCall, with a storage's key among its arguments.
struct UsualCall {
  const PackedHeader* header;  // from the builder
  Cell key;                    // a string
  std::int64_t numel;
  std::int64_t storage_offset;
  std::span<const std::int64_t> sizes;
  std::span<const std::int64_t> strides;
  bool requires_grad;
};

class Builder {
 public:
  // `memory` must outlive the tree.
  Builder(std::pmr::memory_resource& memory, const BuildLimits& limits);

  // Raises the whole budget to this size, for a reader that learns the size of its input gradually.
  void raise_budget(std::uint64_t budget_bytes) noexcept;

  Cell none() const noexcept { return {}; }
  Cell boolean(bool value) const noexcept;
  Cell integer(std::int64_t value) const noexcept;
  // Makes an integer of more than 8 bytes, in little-endian two's complement.
  Cell big_integer(std::span<const std::byte> digits);
  Cell real(double value) const noexcept;
  Cell string(std::string_view utf8);
  Cell bytes(std::span<const std::byte> content);
  Cell byte_array(std::span<const std::byte> content);
  Cell tuple(std::span<const Cell> elements);
  Cell list(std::span<const Cell> elements);
  Cell set(std::span<const Cell> elements);
  Cell frozen_set(std::span<const Cell> elements);
  Cell dict(std::span<const Cell> items);  // key, value, key, value ...
  // Makes an empty list or dict for elements that arrive in parts; its cell is made afterwards.
  // Returns nullptr (and the builder has failed) beyond the budget.
  Sequence* sequence();
  bool append(Sequence& sequence, std::span<const Cell> cells);
  Cell global(std::string_view module, std::string_view name);
  Cell object(const Call& call);
  // Adds to a list, a dict or an object of object() that was made before, which so may hold itself.
  void fill(const Cell& made, const Contents& contents);
  Cell persistent_id(const Cell& id);
  // Makes the parts that many usual calls share, and sets `ids`. An `extra` of kind none is no
  // argument. Returns nullptr (and the builder has failed) beyond the budget.
  const PackedHeader* packed_header(PackedHeader header);
  // Makes the same tree as object() does with the call's pieces, in a tenth of the memory; nullopt
  // if a field of PackedCall is too small for them.
  std::optional<Cell> packed(const UsualCall& call);

  // Returns the text of a string of this builder; valid until the next one is made.
  std::string_view text(const Cell& string) const noexcept {
    return std::string_view(tree_->text_).substr(string.payload, string.count);
  }
  // The tree that finish() will return. Its texts can be read only after that.
  const Tree& tree() const noexcept { return *tree_; }
  // Fails with limit_exceeded if the nodes exceeded the limits; each node that did is none.
  Result<void> check() const;
  // Returns the tree and ends the build. Fails as check() does.
  Result<std::unique_ptr<Tree>> finish(const Cell& root) &&;

 private:
  Cell add_text(Value::Kind kind, std::string_view text);
  Cell add_sequence(Value::Kind kind, std::span<const Cell> cells);
  Sequence* sequence_of(std::span<const Cell> cells);
  std::string_view keep(std::string_view text);
  // Returns one more than the deepest of the cells; 0 (a failure) beyond the limit.
  std::uint32_t nest(std::span<const Cell> cells);
  bool fits_depth(std::uint32_t depth);
  bool fits_budget(bool fits);

  BuildLimits limits_;
  std::unique_ptr<Tree> tree_;
  PackedShapes shapes_;
  std::uint32_t objects_ = 0;
  std::uint32_t headers_ = 0;
  std::string fault_;  // empty while there is no failure
};

// The tree of a checkpoint that has no values.
Result<std::unique_ptr<Tree>> empty_dict(std::pmr::memory_resource& memory);

}  // namespace weightmap::value
