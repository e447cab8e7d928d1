// Builds a value tree by hand: for formats that are no pickle, and for what is to be written.
//
//   value::Builder build(memory, {budget_bytes, depth});
//   const Cell steps = build.string("steps");
//   Result<std::unique_ptr<Tree>> tree = build.finish(build.dict(std::array{steps,
//   build.integer(3)}));
//
// Children come before the container that holds them; a cell that is used twice is one shared
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

#include "runtime/value/packed_shapes.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::value {

struct BuildLimits {
  std::uint64_t budget_bytes;  // nodes and text together
  std::uint32_t depth;         // nesting of containers and calls, at most 65535
};

// A call that is not made: callable(*arguments), and what the result would be given.
struct Call {
  Cell callable;
  Cell arguments;  // a tuple
  std::span<const Cell> elements{};
  std::span<const Cell> items{};  // key, value, key, value ...
  std::optional<Cell> state{};
  bool is_new_object = false;
};

// A call in the form of PackedCall, which has a storage's key among its arguments.
struct UsualCall {
  const PackedHeader* header;  // of the builder
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

  // Makes the budget so large in all, if it is smaller: for one who learns only while reading how
  // much there is.
  void raise_budget(std::uint64_t budget_bytes) noexcept;

  Cell none() const noexcept { return {}; }
  Cell boolean(bool value) const noexcept;
  Cell integer(std::int64_t value) const noexcept;
  // Little-endian two's complement of more than 8 bytes.
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
  // An empty list or dict that is added to before it has a cell, for one who does not hold all that
  // goes into it. nullptr (and the builder has failed) beyond the budget.
  Sequence* sequence();
  bool append(Sequence& sequence, std::span<const Cell> cells);
  Cell global(std::string_view module, std::string_view name);
  Cell object(const Call& call);
  Cell persistent_id(const Cell& id);
  // What many usual calls have in common; `ids` is set here. An `extra` that is none is no
  // argument. nullptr (and the builder has failed) beyond the budget.
  const PackedHeader* packed_header(PackedHeader header);
  // The same tree as object() makes of the call's pieces, in a tenth of the memory; nullopt where a
  // PackedCall has no room for them.
  std::optional<Cell> packed(const UsualCall& call);

  // Of a string of this builder, until the next one is made.
  std::string_view text(const Cell& string) const noexcept {
    return std::string_view(tree_->text_).substr(string.payload, string.count);
  }
  // The tree that finish() will give. Texts in it can be read only from then on.
  const Tree& tree() const noexcept { return *tree_; }
  // Fails with limit_exceeded if the nodes did not fit the limits; each that did not is none.
  Result<void> check() const;
  // The tree, to which the builder adds nothing more. Fails as check() does.
  Result<std::unique_ptr<Tree>> finish(const Cell& root) &&;

 private:
  Cell add_text(Value::Kind kind, std::string_view text);
  Cell add_sequence(Value::Kind kind, std::span<const Cell> cells);
  Sequence* sequence_of(std::span<const Cell> cells);
  std::string_view keep(std::string_view text);
  // One more than the deepest of the cells; 0 (and the builder has failed) beyond the limit.
  std::uint32_t nest(std::span<const Cell> cells);
  bool fits_depth(std::uint32_t depth);
  bool fits_budget(bool fits);

  BuildLimits limits_;
  std::unique_ptr<Tree> tree_;
  PackedShapes shapes_;
  std::uint32_t objects_ = 0;
  std::uint32_t headers_ = 0;
  std::string fault_;  // empty so far
};

// The tree of a checkpoint that has no values.
Result<std::unique_ptr<Tree>> empty_dict(std::pmr::memory_resource& memory);

}  // namespace weightmap::value
