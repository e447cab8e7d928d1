#include "runtime/formats/gguf/metadata.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/bytes/repeated.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/value/build.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::gguf {
namespace {

using value::Cell;

// enum gguf_type of gguf.h
enum ValueType : std::uint32_t {
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

struct TypeFacts {
  std::string_view name;
  std::uint64_t least_bytes;  // of a value
};
constexpr std::array value_types = {
    TypeFacts{"u8", 1},     TypeFacts{"i8", 1},     TypeFacts{"u16", 2}, TypeFacts{"i16", 2},
    TypeFacts{"u32", 4},    TypeFacts{"i32", 4},    TypeFacts{"f32", 4}, TypeFacts{"bool", 1},
    TypeFacts{"string", 8}, TypeFacts{"array", 12}, TypeFacts{"u64", 8}, TypeFacts{"i64", 8},
    TypeFacts{"f64", 8},
};

// Keys that determine how the file is read; each has one type only.
struct KnownKey {
  std::string_view name;
  ValueType type;
  std::optional<std::int64_t> value{};
  std::uint64_t position = 0;  // of the value
};

class MetadataReader {
 public:
  MetadataReader(FieldReader& reader, const Limits& limits, std::pmr::memory_resource& memory)
      : reader_(reader),
        limits_(limits),
        build_(memory, {limits.base_memory, limits.depth}),
        pairs_(build_.sequence()) {}

  bool run(std::uint64_t count, Metadata& metadata) {
    keys_.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i)
      if (!read_pair()) return about_pair(i);
    return add_to_tree(pairs_, waiting_) && check_keys() && use_known_keys(metadata) &&
           finish(metadata);
  }

 private:
  struct Array {
    ValueType element;
    std::uint64_t left;
    value::Sequence* cells;
    std::vector<Cell> waiting;
  };
  static constexpr std::size_t most_waiting = 254;  // fills most of a block of the arena

  bool read_pair();
  bool read_key();
  bool read_type(ValueType& type, std::string_view field);
  bool read_value(ValueType type, Cell& cell);
  bool read_plain(ValueType type, Cell& cell);
  template <class T>
  bool read_integer(Cell& cell);
  template <class T>
  bool read_real(Cell& cell);
  bool read_unsigned(Cell& cell);
  bool read_boolean(Cell& cell);
  bool read_string(Cell& cell);
  // Reads arrays in arrays without recursion.
  bool read_array(Cell& cell);
  bool enter_array();
  bool add_to_tree(value::Sequence* sequence, std::vector<Cell>& waiting);
  bool check_built();
  KnownKey* find_known(std::string_view key) noexcept;
  bool check_keys();
  bool use_known_keys(Metadata& metadata);
  bool use_split(Metadata& metadata);
  bool fail_at(const KnownKey& key, const std::string& what);
  bool finish(Metadata& metadata);
  bool corrupt(std::string message, std::uint64_t at) {
    return reader_.fail(ErrorCode::corrupt, std::move(message), at);
  }
  [[gnu::cold]] bool about_pair(std::uint64_t number);

  FieldReader& reader_;
  const Limits& limits_;
  value::Builder build_;
  value::Sequence* pairs_;
  std::vector<Cell> waiting_;  // for pairs_
  std::vector<Array> open_;    // the current array and those around it
  std::vector<bytes::Named> keys_;
  std::string_view key_;  // of the current pair; empty: not known yet
  KnownKey alignment_{"general.alignment", u32};
  KnownKey split_number_{"split.no", u16};
  KnownKey split_count_{"split.count", u16};
  KnownKey split_tensors_{"split.tensors.count", i32};
};

bool MetadataReader::read_pair() {
  key_ = {};
  if (!read_key()) return false;
  ValueType type{};
  const std::uint64_t type_position = reader_.position();
  if (!read_type(type, "the type")) return false;
  KnownKey* const known = find_known(key_);
  if (known != nullptr && known->type != type)
    return corrupt("the type is " + std::string(value_types[type].name) + ", expected " +
                       std::string(value_types[known->type].name),
                   type_position);
  const std::uint64_t position = reader_.position();
  Cell cell;
  if (!read_value(type, cell)) return false;
  if (known != nullptr) {
    known->value = std::bit_cast<std::int64_t>(cell.payload);
    known->position = position;
  }
  waiting_.push_back(cell);
  return waiting_.size() < most_waiting ? check_built() : add_to_tree(pairs_, waiting_);
}

bool MetadataReader::read_key() {
  const std::uint64_t position = reader_.position();
  std::string_view key;
  if (!reader_.text(key, "the key")) return false;
  if (key.empty()) return corrupt("the key is empty", position);
  if (!bytes::is_utf8(key))
    return corrupt("the key " + bytes::quote(key) + " is not UTF-8", position);
  if (key.find('\0') != key.npos)
    return corrupt("the key " + bytes::quote(key) + " has a NUL in it, where ggml ends it",
                   position);
  key_ = key;
  keys_.push_back({key, position});
  waiting_.push_back(build_.string(key));
  return true;
}

bool MetadataReader::read_type(ValueType& type, std::string_view field) {
  const std::uint64_t position = reader_.position();
  std::uint32_t number = 0;
  if (!reader_.number(number, field)) return false;
  if (number >= value_types.size())
    return corrupt(std::string(field) + " " + std::to_string(std::bit_cast<std::int32_t>(number)) +
                       " is not known",
                   position);
  type = static_cast<ValueType>(number);
  return true;
}

bool MetadataReader::read_value(ValueType type, Cell& cell) {
  return type == array ? read_array(cell) : read_plain(type, cell);
}

bool MetadataReader::read_plain(ValueType type, Cell& cell) {
  switch (type) {
    case u8:
      return read_integer<std::uint8_t>(cell);
    case i8:
      return read_integer<std::int8_t>(cell);
    case u16:
      return read_integer<std::uint16_t>(cell);
    case i16:
      return read_integer<std::int16_t>(cell);
    case u32:
      return read_integer<std::uint32_t>(cell);
    case i32:
      return read_integer<std::int32_t>(cell);
    case i64:
      return read_integer<std::int64_t>(cell);
    case u64:
      return read_unsigned(cell);
    case f32:
      return read_real<float>(cell);
    case f64:
      return read_real<double>(cell);
    case boolean:
      return read_boolean(cell);
    default:
      return read_string(cell);
  }
}

template <class T>
bool MetadataReader::read_integer(Cell& cell) {
  T number{};
  if (!reader_.number(number, "the value")) return false;
  cell = build_.integer(number);
  return true;
}

template <class T>
bool MetadataReader::read_real(Cell& cell) {
  T number{};
  if (!reader_.number(number, "the value")) return false;
  cell = build_.real(number);
  return true;
}

bool MetadataReader::read_unsigned(Cell& cell) {
  std::uint64_t number = 0;
  if (!reader_.number(number, "the value")) return false;
  const auto as_signed = static_cast<std::int64_t>(number);
  if (as_signed >= 0) {
    cell = build_.integer(as_signed);
    return true;
  }
  std::array<std::byte, sizeof number + 1> digits{};  // with a sign
  bytes::store_le(digits.data(), number);
  cell = build_.big_integer(digits);
  return true;
}

bool MetadataReader::read_boolean(Cell& cell) {
  const std::uint64_t position = reader_.position();
  std::uint8_t value = 0;
  if (!reader_.number(value, "the value")) return false;
  if (value > 1)
    return corrupt("the bool is " + std::to_string(value) + ", expected 0 or 1", position);
  cell = build_.boolean(value == 1);
  return true;
}

bool MetadataReader::read_string(Cell& cell) {
  std::string_view text;
  if (!reader_.text(text, "the string")) return false;
  build_.raise_budget(limits_.base_memory + 5 * reader_.position());
  // Vocabularies contain parts of characters.
  const bool is_text = bytes::valid_prefix(text) == text.size();
  cell = is_text ? build_.string(text) : build_.bytes(std::as_bytes(std::span(text)));
  return true;  // the builder's check covers many at once
}

bool MetadataReader::read_array(Cell& cell) {
  if (!enter_array()) return false;
  while (true) {
    Array& at = open_.back();
    if (at.left == 0) {
      if (!add_to_tree(at.cells, at.waiting)) return false;
      cell = value::make_cell(Value::Kind::list, at.cells);
      open_.pop_back();
      if (open_.empty()) return true;
    } else {
      --at.left;
      if (at.element == array) {
        if (!enter_array()) return false;
        continue;
      }
      if (!read_plain(at.element, cell)) return false;
    }
    Array& into = open_.back();
    into.waiting.push_back(cell);
    if (into.waiting.size() == most_waiting && !add_to_tree(into.cells, into.waiting)) return false;
  }
}

bool MetadataReader::enter_array() {
  const std::uint64_t position = reader_.position();
  // The dict of all pairs counts as one more container.
  if (open_.size() + 1 >= limits_.depth)
    return reader_.fail(
        ErrorCode::limit_exceeded,
        "the arrays nest deeper than the limit of " + std::to_string(limits_.depth) + " containers",
        position);
  ValueType element{};
  std::uint64_t count = 0;
  if (!read_type(element, "the element type") || !reader_.number(count, "the count")) return false;
  if (!reader_.has_room_for(count, value_types[element].least_bytes, "the array", "elements"))
    return false;
  open_.push_back({element, count, build_.sequence(), {}});
  return check_built();
}

// The budget grows with the bytes read so far.
bool MetadataReader::add_to_tree(value::Sequence* sequence, std::vector<Cell>& waiting) {
  build_.raise_budget(limits_.base_memory + 5 * reader_.position());
  if (sequence != nullptr) build_.append(*sequence, waiting);
  waiting.clear();
  return check_built();
}

bool MetadataReader::check_built() {
  Result<void> fits = build_.check();
  return fits ||
         reader_.fail(fits.error().code, std::move(fits.error().message), reader_.position());
}

KnownKey* MetadataReader::find_known(std::string_view key) noexcept {
  for (KnownKey* known : {&alignment_, &split_number_, &split_count_, &split_tensors_})
    if (known->name == key) return known;
  return nullptr;
}

bool MetadataReader::check_keys() {
  const bytes::Named* const again = bytes::find_repeated(keys_);
  return again == nullptr ||
         corrupt("the metadata have the key " + bytes::quote(again->text) + " twice",
                 again->position);
}

bool MetadataReader::fail_at(const KnownKey& key, const std::string& what) {
  return corrupt("metadata key " + bytes::quote(key.name) + " is " + std::to_string(*key.value) +
                     ", expected " + what,
                 key.position);
}

bool MetadataReader::use_known_keys(Metadata& metadata) {
  constexpr std::int64_t largest = 1 << 20;
  if (alignment_.value) {
    const auto alignment = static_cast<std::uint64_t>(*alignment_.value);
    if (!std::has_single_bit(alignment)) return fail_at(alignment_, "a power of two");
    if (*alignment_.value > largest)
      return fail_at(alignment_, "at most " + std::to_string(largest));
    metadata.alignment = static_cast<std::uint32_t>(alignment);
  }
  return split_count_.value.value_or(0) < 2 || use_split(metadata);
}

bool MetadataReader::use_split(Metadata& metadata) {
  for (const KnownKey* key : {&split_number_, &split_tensors_})
    if (!key->value)
      return corrupt("the metadata have split.count " + std::to_string(*split_count_.value) +
                         " and no " + std::string(key->name),
                     split_count_.position);
  if (*split_number_.value >= *split_count_.value)
    return fail_at(split_number_,
                   "less than split.count, which is " + std::to_string(*split_count_.value));
  if (*split_tensors_.value < 0) return fail_at(split_tensors_, "a number of tensors");
  metadata.split = {static_cast<std::uint32_t>(*split_number_.value),
                    static_cast<std::uint32_t>(*split_count_.value),
                    static_cast<std::uint64_t>(*split_tensors_.value)};
  return true;
}

bool MetadataReader::finish(Metadata& metadata) {
  Result<std::unique_ptr<value::Tree>> tree =
      std::move(build_).finish(value::make_cell(Value::Kind::dict, pairs_));
  if (!tree)
    return reader_.fail(tree.error().code, std::move(tree.error().message), reader_.position());
  metadata.tree = std::move(*tree);
  return true;
}

bool MetadataReader::about_pair(std::uint64_t number) {
  std::string subject = "metadata key " + std::to_string(number);
  if (!key_.empty()) subject += " " + bytes::quote(key_);
  Error& error = reader_.error();
  error.message.insert(0, subject + ": ");
  return false;
}

}  // namespace

bool read_metadata(FieldReader& reader, std::uint64_t count, const Limits& limits,
                   std::pmr::memory_resource& memory, Metadata& metadata) {
  return MetadataReader(reader, limits, memory).run(count, metadata);
}

}  // namespace weightmap::gguf
