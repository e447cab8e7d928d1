#include "runtime/formats/dcp/values.hpp"

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/dcp/nesting.hpp"
#include "runtime/formats/dcp/read_objects.hpp"
#include "runtime/formats/torch/names.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::dcp {
namespace {

using value::Cell;

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
