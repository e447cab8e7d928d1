// Builds the value tree of a checkpoint that is to be written (checkpoint_writer.hpp).
//
//   weightmap::ValueBuilder& build = writer.values();
//   const weightmap::Value root = build.dict(std::array{build.string("epoch"), build.integer(3)});
//
// A Value from a builder can be passed to the same builder, as part of another, and to its writer;
// its content can be read once it is written. Children are made before their container, or given
// to it afterwards (fill()), as where something holds itself. A Value used twice is one shared
// object in the file. Text is copied. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

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
