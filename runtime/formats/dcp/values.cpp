#include "runtime/formats/dcp/values.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/build.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/dcp/read_objects.hpp"
#include "runtime/formats/torch/names.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"

namespace weightmap::dcp {
namespace {

using value::Cell;

// Puts values at their paths: the nested dicts and lists that torch's unflatten_state_dict() makes
// of the flat names of a checkpoint.
class Nesting {
 public:
  explicit Nesting(const Limits& limits) : limits_(limits) {}

  // Sets the value at a path, a tuple of keys, or under the name alone without a path of texts and
  // integers. What an integer is a key of is a list, which is filled up with None; a text that of a
  // dict. Texts must live as long as the tree. Fails with corrupt if a value lies on the way, with
  // limit_exceeded for a path deeper, or lists longer, than the limits.
  Result<void> set(std::string_view name, const std::optional<Value>& path, const Cell& value);
  // Makes the dict of all values in the tree, which has the values. Fails with limit_exceeded.
  Result<Cell> finish(value::Tree& tree) const;

 private:
  struct Key {
    std::optional<std::int64_t> number;
    std::string_view text;
  };
  struct Slot {
    Cell value;
    std::uint32_t container = 0;  // the number of what is here; 0: a value
  };
  struct Container {
    bool is_list = false;
    std::vector<std::pair<Key, Slot>> slots;  // of a list by its indices
    std::unordered_map<std::string, std::size_t> places;
  };

  static std::vector<Key> keys_of(std::string_view name, const std::optional<Value>& path);
  Result<std::size_t> place_of(std::uint32_t container, const Key& key);

  const Limits& limits_;
  std::vector<Container> containers_{1};  // each before those in it
  std::uint64_t padding_ = 0;             // elements of lists that nothing was set at
};

std::vector<Nesting::Key> Nesting::keys_of(std::string_view name,
                                           const std::optional<Value>& path) {
  std::vector<Key> keys;
  if (path)
    for (const Value& part : path->elements()) {
      if (!part.integer() && !part.string()) return {{std::nullopt, name}};
      keys.push_back({part.integer(), part.string().value_or(std::string_view())});
    }
  if (keys.empty()) keys.push_back({std::nullopt, name});
  return keys;
}

// Makes an empty slot if there is none yet.
Result<std::size_t> Nesting::place_of(std::uint32_t number, const Key& key) {
  Container& container = containers_[number];
  if (!container.is_list) {
    const std::string text =
        key.number ? "#" + std::to_string(*key.number) : ":" + std::string(key.text);
    const auto [at, is_new] = container.places.try_emplace(text, container.slots.size());
    if (is_new) container.slots.push_back({key, {}});
    return at->second;
  }
  if (!key.number || *key.number < 0)
    return failure(ErrorCode::corrupt, "its path has a key of a list that is no index");
  const auto index = static_cast<std::uint64_t>(*key.number);
  if (index < container.slots.size()) return index;
  const std::uint64_t most = limits_.base_memory / sizeof(Slot);
  padding_ += std::min(index - container.slots.size(), most + 1);
  if (padding_ > most)
    return failure(ErrorCode::limit_exceeded, "its path has the index " + std::to_string(index) +
                                                  ", and the lists have more than the limit of " +
                                                  std::to_string(most) + " empty places");
  container.slots.resize(index + 1);
  return index;
}

Result<void> Nesting::set(std::string_view name, const std::optional<Value>& path,
                          const Cell& value) {
  const auto about = [&](Error error) {
    error.message.insert(0, bytes::quote(name) + ": ");
    return tl::unexpected<Error>(std::move(error));
  };
  const std::vector<Key> keys = keys_of(name, path);
  if (keys.size() > limits_.depth)
    return about({ErrorCode::limit_exceeded,
                  "its path has " + std::to_string(keys.size()) + " keys, the limit is " +
                      std::to_string(limits_.depth),
                  Error::no_offset,
                  {}});
  std::uint32_t container = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Result<std::size_t> place = place_of(container, keys[i]);
    if (!place) return about(std::move(place.error()));
    Slot& slot = containers_[container].slots[*place].second;
    if (i + 1 == keys.size()) {
      slot = {value, 0};
      break;
    }
    if (slot.container == 0) {
      if (value::kind_of(slot.value) != Value::Kind::none)
        return about({ErrorCode::corrupt,
                      "its path leads through another value of the metadata",
                      Error::no_offset,
                      {}});
      slot.container = static_cast<std::uint32_t>(containers_.size());
      container = slot.container;
      containers_.emplace_back().is_list = keys[i + 1].number.has_value();  // moves the slot
    } else {
      container = slot.container;
    }
  }
  return {};
}

Result<Cell> Nesting::finish(value::Tree& tree) const {
  std::vector<Cell> made(containers_.size());
  std::vector<Cell> cells;
  for (std::size_t number = containers_.size(); number-- > 0;) {
    const Container& container = containers_[number];
    cells.clear();
    for (const auto& [key, slot] : container.slots) {
      if (!container.is_list)
        cells.push_back(key.number ? value::make_integer(*key.number)
                                   : value::make_cell(Value::Kind::string,
                                                      tree.position_of(key.text.data()),
                                                      static_cast<std::uint32_t>(key.text.size())));
      cells.push_back(slot.container == 0 ? slot.value : made[slot.container]);
    }
    const auto count = static_cast<std::uint32_t>(cells.size());
    const std::uint32_t depth = 1 + value::deepest(cells.data(), count);
    value::Sequence* const sequence = value::make_sequence(tree.arena());
    if (depth > limits_.depth || sequence == nullptr ||
        !value::extend(tree.arena(), *sequence, cells.data(), count, depth, 0))
      return failure(ErrorCode::limit_exceeded,
                     "the values nest deeper than the limit of " + std::to_string(limits_.depth) +
                         ", or need more memory than their items and names allow");
    made[number] =
        value::make_cell(container.is_list ? Value::Kind::list : Value::Kind::dict, sequence);
  }
  return made.front();
}

struct Described {
  std::string_view key;
  std::uint64_t nbytes;  // of the storage
  DType dtype;
  std::int64_t storage_offset;
  std::span<const std::int64_t> sizes;
  std::span<const std::int64_t> strides;
  bool requires_grad;
  unsigned flags;  // of TensorView
};

// The pickle of a list of the calls by which torch.save describes tensors.
class TensorCalls {
 public:
  void add(const Described& tensor) {
    const std::string storage(torch::storage_class(tensor.dtype));
    const bool is_typed = !storage.empty();
    text_ += is_typed ? "ctorch._utils\n_rebuild_tensor_v2\n(("
                      : "ctorch._utils\n_rebuild_tensor_v3\n((";
    add_text("storage");
    text_ += is_typed ? "ctorch\n" + storage + "\n" : "ctorch.storage\nUntypedStorage\n";
    add_text(tensor.key);
    add_text("cpu");
    add_integer(tensor.nbytes / (is_typed ? element_size(tensor.dtype) : 1));
    text_ += "tQ";
    add_integer(static_cast<std::uint64_t>(tensor.storage_offset));
    add_integers(tensor.sizes);
    add_integers(tensor.strides);
    text_ += tensor.requires_grad ? '\x88' : '\x89';
    text_ += "ccollections\nOrderedDict\n)R";
    if (!is_typed) text_ += "ctorch\n" + std::string(to_string(tensor.dtype)) + "\n";
    if (tensor.flags != 0) text_ += '}';
    if ((tensor.flags & TensorView::conjugate) != 0) add_flag("conj");
    if ((tensor.flags & TensorView::negative) != 0) add_flag("neg");
    text_ += "tRa";
  }
  std::string finish() && { return std::move(text_) + '.'; }

 private:
  void add_word(std::uint64_t value, std::size_t bytes) {
    std::array<char, sizeof value> word{};
    bytes::store_le(std::as_writable_bytes(std::span(word)).data(), value);
    text_.append(word.data(), bytes);
  }
  void add_text(std::string_view text) {
    text_ += 'X';  // BINUNICODE
    add_word(text.size(), 4);
    text_ += text;
  }
  void add_integer(std::uint64_t value) {
    text_ += "\x8a\x08";  // LONG1
    add_word(value, 8);
  }
  void add_integers(std::span<const std::int64_t> values) {
    text_ += '(';
    for (const std::int64_t value : values) add_integer(static_cast<std::uint64_t>(value));
    text_ += 't';
  }
  void add_flag(std::string_view name) {
    add_text(name);
    text_ += "\x88s";
  }

  std::string text_ = "]";
};

Described piece(const catalog::Catalog& catalog, std::uint32_t index) {
  const catalog::Entry& entry = catalog[index];
  const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
  const std::int64_t* const dims = catalog.dims(entry);
  constexpr unsigned lazy = TensorView::conjugate | TensorView::negative;
  return {catalog.text(storage.key),
          storage.nbytes,
          entry.dtype,
          entry.storage_offset,
          {dims, entry.rank},
          {dims + entry.rank, entry.rank},
          (entry.flags & catalog::Entry::requires_grad) != 0,
          entry.flags & lazy};
}

}  // namespace

Result<format::Values> read_values(const Metadata& metadata, std::span<const PiecesOf> pieces,
                                   std::span<const DataFile> files, const catalog::Catalog& catalog,
                                   const OpenOptions& options) {
  TensorCalls calls;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Tensor& tensor = metadata.tensors[i];
    if (pieces[i].count == 1) {
      calls.add(piece(catalog, pieces[i].first));
      continue;
    }
    strides.resize(tensor.sizes.size());
    static_cast<void>(bytes::row_major_strides(tensor.sizes, strides));
    std::uint64_t count = 1;  // the catalog has proven that the whole fits
    for (const std::int64_t size : tensor.sizes) count *= static_cast<std::uint64_t>(size);
    calls.add({tensor.name, bytes_of(tensor.dtype, count), tensor.dtype, 0, tensor.sizes, strides,
               tensor.requires_grad, 0});
  }
  TRY_ASSIGN(ReadObjects read, read_objects(metadata.objects, std::move(calls).finish(), files,
                                            options, *std::pmr::new_delete_resource()));
  format::Values values;
  Nesting nesting(options.limits);
  std::size_t next = 0;
  const auto add_tensors = [&](std::uint32_t before) -> Result<void> {
    for (; next < pieces.size() && metadata.tensors[next].rank < before; ++next) {
      const Tensor& tensor = metadata.tensors[next];
      const Cell& call = read.more[next];
      if (pieces[next].count == 1)
        values.nodes.add({*value::position_of(call), pieces[next].first});
      TRY(nesting.set(tensor.name, tensor.path, call));
    }
    return {};
  };
  for (std::size_t i = 0; i < metadata.objects.size(); ++i) {
    const Object& object = metadata.objects[i];
    TRY(add_tensors(object.rank));
    if (read.cells[i])
      TRY(nesting.set(object.name, object.path, *read.cells[i]));
    else
      values.left_out.emplace_back(object.name);
  }
  TRY(add_tensors(std::numeric_limits<std::uint32_t>::max()));
  values.nodes.sort();
  TRY_ASSIGN(const Cell root, nesting.finish(*read.tree));
  read.tree->set_root(root);
  values.tree = std::move(read.tree);
  return values;
}

}  // namespace weightmap::dcp
