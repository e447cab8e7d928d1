// Writes the pickle of a state_dict opcode for opcode as torch.save does (protocol 2, CPython's
// pickler): the same memo numbers, the same batches of a thousand items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weightmap/dtype.hpp"

namespace weightmap::bench {

// "HalfStorage"; empty for a dtype that torch.save does not store under a type of its own.
std::string_view storage_class(DType dtype) noexcept;

// collections.OrderedDict of contiguous tensors, each with a storage of its own: "0", "1", ... in
// the order of the calls.
class StateDictPickle {
 public:
  // `count` tensors will follow, all of `dtype`, which has a storage_class().
  StateDictPickle(std::size_t count, DType dtype);
  void add(std::string_view name, std::span<const std::int64_t> shape);
  // After the last tensor.
  std::vector<std::byte> finish() &&;

 private:
  // Index in the memo of something that is written once and fetched ever after.
  struct Remembered {
    bool written = false;
    std::uint32_t memo = 0;
  };

  void opcode(char code) { out_.push_back(static_cast<std::byte>(code)); }
  void text(std::string_view value);
  void little_endian(std::uint64_t value, int bytes);
  void put();
  void get(std::uint32_t memo);
  void integer(std::int64_t value);
  void string(std::string_view value);
  void global(Remembered& where, std::string_view module, std::string_view name);
  void constant(Remembered& where, std::string_view value);
  void tuple_of(std::span<const std::int64_t> values);
  void persistent_id(std::int64_t numel);
  void begin_item();
  void end_item();

  std::vector<std::byte> out_;
  std::size_t count_;
  DType dtype_;
  std::size_t written_ = 0;
  std::uint32_t memo_ = 0;
  Remembered ordered_dict_, rebuild_, storage_, storage_type_, location_;
};

}  // namespace weightmap::bench
