#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/options.hpp"
#include "python/src/tensor.hpp"
#include "python/src/torch_door.hpp"
#include "runtime/base/element_format.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Lazy bits mean that the stored values are not the tensor's.
void refuse_lazy_bits(const Tensor& tensor) {
  if (!tensor.view().is_conjugate() && !tensor.view().is_negative()) return;
  raise(ErrorCode::unsupported,
        "tensor '" + std::string(tensor.named.name) +
            "' was saved as a lazy conjugate or negative: its stored values are not its values; "
            "take .torch(), or .bits() for what is stored");
}

nb::tuple byte_strides(const TensorView& view) {
  nb::list list;
  for (std::size_t dim = 0; dim < view.rank(); ++dim) list.append(byte_stride(view, dim));
  return nb::tuple(list);
}

// Lent memory stays lent, so that only the first loan would notice a truncated file.
void check_guarded(const Tensor& tensor) {
  if (tensor.owner->checkpoint().info().protection == Protection::guard)
    value_or_raise(check_unchanged(tensor.owner->checkpoint(), tensor.view()));
}

// The tensor of torch, if it is one that reaches from the first byte of its storage to the last
// one. Invalid otherwise, and where torch's door does not make it.
nb::object to_torch_directly(const Tensor& tensor, std::optional<CopyOnWrite> how) {
  const TensorView& view = tensor.view();
  if (view.is_foreign_byte_order() || view.is_conjugate() || view.is_negative() ||
      tensor.named.storage_offset != 0)
    return {};
  const NamedStorage storage =
      Backing(tensor.owner->checkpoint()).storage(tensor.named.storage_index);
  const std::uint64_t reach = reach_of(view.shape(), view.strides());
  if (reach == 0 || reach > storage.nbytes / element_size(view.dtype()) ||
      reach * element_size(view.dtype()) != storage.nbytes || !torch_door_is_open())
    return {};
  const std::span<std::byte> memory = value_or_raise(tensor.owner->lend(storage.nbytes, how));
  return through_torch_door({tensor.owner, memory.data() + tensor.position(), view.dtype(),
                             view.shape(), view.strides()});
}

// As to_torch_directly(), with blocked types as to_torch() shows them. None in place of an invalid
// object.
nb::object to_torch_alone(const Tensor& tensor) {
  if (is_blocked(tensor.view().dtype())) return to_torch_alone(bits_of(tensor));
  check_guarded(tensor);
  const nb::object made = to_torch_directly(tensor, std::nullopt);
  return made.is_valid() ? made : nb::none();
}

// What was saved as one tensor under two names.
bool is_same(const Tensor& one, const Tensor& other) {
  const TensorView &left = one.view(), &right = other.view();
  return one.named.storage_offset == other.named.storage_offset && left.dtype() == right.dtype() &&
         left.is_conjugate() == right.is_conjugate() && left.is_negative() == right.is_negative() &&
         std::ranges::equal(left.shape(), right.shape()) &&
         std::ranges::equal(left.strides(), right.strides());
}

// Which of some tensors use a storage.
struct StorageUsers {
  std::size_t first;  // position of the first one
  bool are_same;      // the others are the same tensor
};

using UsersByStorage = std::unordered_map<std::size_t, StorageUsers>;

UsersByStorage users_of_storages(const std::vector<const Tensor*>& tensors) {
  UsersByStorage users;
  users.reserve(tensors.size());
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    if (tensors[at] == nullptr) continue;
    const auto [found, is_first] =
        users.try_emplace(tensors[at]->named.storage_index, StorageUsers{at, true});
    if (!is_first && !is_same(*tensors[found->second.first], *tensors[at]))
      found->second.are_same = false;
  }
  return users;
}

}  // namespace

nb::list to_torch_at_once(const nb::list& objects) {
  std::vector<const Tensor*> tensors;
  tensors.reserve(objects.size());
  for (nb::handle object : objects)
    tensors.push_back(nb::isinstance<Tensor>(object) ? nb::inst_ptr<Tensor>(object) : nullptr);
  const UsersByStorage users = users_of_storages(tensors);
  nb::list made;
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    nb::object tensor = nb::none();
    if (tensors[at] != nullptr) {
      const StorageUsers& user = users.at(tensors[at]->named.storage_index);
      if (user.are_same && user.first != at)
        tensor = made[user.first];
      else if (user.are_same)
        tensor = to_torch_alone(*tensors[at]);
    }
    made.append(tensor);
  }
  return made;
}

nb::tuple shape_of(const Tensor& tensor) { return int_tuple(tensor.view().shape()); }
nb::tuple strides_of(const Tensor& tensor) { return int_tuple(tensor.view().strides()); }

Tensor bits_of(const Tensor& tensor) {
  Tensor bits = tensor;
  bits.part = value_or_raise(tensor.view().bits());
  if (const DType dtype = tensor.view().dtype(); is_blocked(dtype))
    bits.named.storage_offset = static_cast<std::int64_t>(
        bytes_of(dtype, static_cast<std::uint64_t>(tensor.named.storage_offset)));
  return bits;
}

nb::object to_numpy(const Tensor& tensor) {
  if (is_blocked(tensor.view().dtype())) return to_numpy(bits_of(tensor));
  refuse_lazy_bits(tensor);
  const TensorView& view = tensor.view();
  const ElementFormat& format = element_format(view.dtype());
  if (format.numpy_name.empty())
    raise(ErrorCode::unsupported, "numpy has no type for " + std::string(format.name) +
                                      "; .bits() gives its elements as integers");
  return nb::module_::import_("weightmap._numpy")
      .attr("view")(format.numpy_name.data(), format.numpy_kind == 0, view.is_foreign_byte_order(),
                    shape_of(tensor), mapped_bytes(tensor.owner), tensor.position(),
                    byte_strides(view));
}

nb::object to_torch(const Tensor& tensor, nb::handle copy_on_write) {
  if (is_blocked(tensor.view().dtype())) return to_torch(bits_of(tensor), copy_on_write);
  const std::optional<CopyOnWrite> how = read_copy_on_write(copy_on_write);
  check_guarded(tensor);
  if (nb::object direct = to_torch_directly(tensor, how); direct.is_valid()) return direct;
  const TensorView& view = tensor.view();
  const Checkpoint& checkpoint = tensor.owner->checkpoint();
  const NamedStorage storage = Backing(checkpoint).storage(tensor.named.storage_index);
  const std::uint64_t position =
      checkpoint.source(storage.source).mapping_offset + storage.payload_offset;
  const MappedBytes lent = lent_bytes(tensor.owner, storage.nbytes, how);
  nb::object made =
      nb::module_::import_("weightmap._torch.tensors")
          .attr("view")(lent, position, storage.nbytes, to_string(view.dtype()).data(),
                        tensor.named.storage_offset, shape_of(tensor), strides_of(tensor),
                        view.is_conjugate(), view.is_negative(), view.is_foreign_byte_order());
  const std::size_t alignment = std::min<std::size_t>(element_size(view.dtype()), 8);
  const auto address = reinterpret_cast<std::uintptr_t>(lent.bytes.data()) + position;
  const bool is_copy = view.is_foreign_byte_order() || address % alignment != 0;
  if (is_copy) value_or_raise(check_unchanged(checkpoint, view));
  return made;
}

nb::dict array_interface(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  const ElementFormat& format = element_format(view.dtype());
  if (!format.is_numpy_type() || view.is_conjugate() || view.is_negative()) {
    // An AttributeError, so that numpy goes on to ask for __array__().
    PyErr_Format(PyExc_AttributeError, "numpy itself has no word for this %s; see Tensor.numpy()",
                 std::string(to_string(view.dtype())).c_str());
    throw nb::python_error();
  }
  const auto size = static_cast<std::int64_t>(element_size(view.dtype()));
  const bool is_big = view.is_foreign_byte_order() != native_is_big;
  value_or_raise(tensor.owner->check_bytes());
  nb::dict description;
  description["version"] = 3;
  description["typestr"] = std::string(1, size == 1 ? '|'
                                          : is_big  ? '>'
                                                    : '<') +
                           format.numpy_kind + std::to_string(size);
  description["shape"] = shape_of(tensor);
  description["strides"] = byte_strides(view);
  description["data"] =
      nb::make_tuple(reinterpret_cast<std::uintptr_t>(tensor.data()), !tensor.is_writable());
  return description;
}

}  // namespace weightmap::python
