#include "runtime/dcp/values.hpp"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/row_major.hpp"
#include "runtime/dcp/nesting.hpp"
#include "runtime/dcp/read_objects.hpp"
#include "runtime/torch/names.hpp"
#include "runtime/value/build.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::dcp {
namespace {

using value::Cell;
using Kind = Value::Kind;

// What a call describes.
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

// Makes the calls by which torch.save describes tensors. Nodes beyond the budget are none.
class TensorCalls {
 public:
  // Objects get positions from `position` on.
  TensorCalls(value::Tree& tree, std::uint32_t position) : tree_(tree), position_(position) {}

  std::uint32_t next_position() const noexcept { return position_; }
  bool has_failed() const noexcept { return has_failed_; }

  Cell tensor(const Described& tensor) {
    const bool is_typed = !torch::storage_class(tensor.dtype).empty();
    const std::uint64_t unit = is_typed ? element_size(tensor.dtype) : 1;
    const Cell type = is_typed ? global("torch", torch::storage_class(tensor.dtype))
                               : global("torch.storage", "UntypedStorage");
    const std::array id{text("storage"), type, text(tensor.key), text("cpu"),
                        value::make_integer(static_cast<std::int64_t>(tensor.nbytes / unit))};
    const Cell function =
        global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    const std::uint32_t at = position_++;
    std::vector<Cell> arguments{
        reference(tuple(id)),
        value::make_integer(tensor.storage_offset),
        integers(tensor.sizes),
        integers(tensor.strides),
        value::make_cell(Kind::boolean, std::uint64_t{tensor.requires_grad}),
        call(global("collections", "OrderedDict"), tuple({}), position_++)};
    if (!is_typed) arguments.push_back(global("torch", to_string(tensor.dtype)));
    if (tensor.flags != 0) arguments.push_back(lazy_bits(tensor.flags));
    return call(function, tuple(arguments), at);
  }

 private:
  template <class T>
  T* kept(T* made) {
    has_failed_ |= made == nullptr;
    return made;
  }
  Cell text(std::string_view text) const noexcept {
    return value::make_cell(Kind::string, tree_.position_of(text.data()),
                            static_cast<std::uint32_t>(text.size()));
  }
  Cell global(std::string_view module, std::string_view name) {
    const auto [known, is_new] = globals_.try_emplace({module, name});
    if (is_new)
      if (const value::Global* made = kept(value::make_global(tree_.arena(), module, name, 0)))
        known->second = value::make_cell(Kind::global, made);
    return known->second;
  }
  Cell tuple(std::span<const Cell> cells) {
    const auto count = static_cast<std::uint32_t>(cells.size());
    if (count == 0) return value::make_cell(Kind::tuple, std::uint64_t{0});
    Cell made;
    has_failed_ |= !value::make_tuple(tree_.arena(), cells.data(), count,
                                      1 + value::deepest(cells.data(), count), made);
    return made;
  }
  Cell integers(std::span<const std::int64_t> numbers) {
    std::vector<Cell> cells;
    for (const std::int64_t number : numbers) cells.push_back(value::make_integer(number));
    return tuple(cells);
  }
  Cell reference(const Cell& id) {
    Cell made;
    has_failed_ |= !value::make_persistent_id(tree_.arena(), id, 1 + value::depth_of(id), made);
    return made;
  }
  Cell call(const Cell& function, const Cell& arguments, std::uint32_t position) {
    const value::Object* const made = kept(value::make_object(
        tree_.arena(), function, arguments, false, 1 + value::depth_of(arguments), position));
    return made == nullptr ? Cell() : value::make_cell(Kind::object, made);
  }
  Cell lazy_bits(unsigned flags) {
    std::vector<Cell> items;
    const Cell yes = value::make_cell(Kind::boolean, std::uint64_t{1});
    if ((flags & TensorView::conjugate) != 0) items.insert(items.end(), {text("conj"), yes});
    if ((flags & TensorView::negative) != 0) items.insert(items.end(), {text("neg"), yes});
    value::Sequence* const made = kept(value::make_sequence(tree_.arena()));
    if (made == nullptr) return {};
    has_failed_ |= !value::extend(tree_.arena(), *made, items.data(),
                                  static_cast<std::uint32_t>(items.size()), 1, 0);
    return value::make_cell(Kind::dict, made);
  }

  value::Tree& tree_;
  std::uint32_t position_;
  std::map<std::pair<std::string_view, std::string_view>, Cell> globals_;
  bool has_failed_ = false;
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
  TRY_ASSIGN(ReadObjects objects,
             read_objects(metadata.objects, files, options, *std::pmr::new_delete_resource()));
  value::Tree& tree = *objects.tree;
  constexpr std::uint64_t most_of_tensor = 4096;
  tree.arena().raise_budget(most_of_tensor * metadata.tensors.size());
  format::Values values;
  TensorCalls calls(tree, objects.positions);
  Nesting nesting(options.limits);
  std::vector<std::int64_t> strides;
  const auto add_tensor = [&](std::size_t number) -> Result<void> {
    const Tensor& tensor = metadata.tensors[number];
    const PiecesOf& of = pieces[number];
    const std::uint32_t position = calls.next_position();
    Described described = piece(catalog, of.first);
    if (of.count == 1) {
      values.nodes.add({position, of.first});
    } else {
      strides.resize(tensor.sizes.size());
      static_cast<void>(bytes::row_major_strides(tensor.sizes, strides));
      std::uint64_t count = 1;  // the catalog has proven that the whole fits
      for (const std::int64_t size : tensor.sizes) count *= static_cast<std::uint64_t>(size);
      described = {tensor.name,          bytes_of(tensor.dtype, count),
                   tensor.dtype,         0,
                   tensor.sizes,         strides,
                   tensor.requires_grad, 0};
    }
    return nesting.set(tensor.name, tensor.path, calls.tensor(described));
  };
  std::size_t next = 0;
  for (std::size_t i = 0; i <= metadata.objects.size(); ++i) {
    const Object* const object = i == metadata.objects.size() ? nullptr : &metadata.objects[i];
    while (next < metadata.tensors.size() &&
           (object == nullptr || metadata.tensors[next].rank < object->rank))
      TRY(add_tensor(next++));
    if (object == nullptr) break;
    if (objects.cells[i])
      TRY(nesting.set(object->name, object->path, *objects.cells[i]));
    else
      values.left_out.emplace_back(object->name);
  }
  values.nodes.sort();
  TRY_ASSIGN(const Cell root, nesting.finish(tree));
  if (calls.has_failed())
    return failure(ErrorCode::limit_exceeded,
                   "the tensors among the values need more memory than " +
                       std::to_string(most_of_tensor) + " bytes each");
  tree.set_root(root);
  values.tree = std::move(objects.tree);
  return values;
}

}  // namespace weightmap::dcp
