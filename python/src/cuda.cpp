#include "weightmap/cuda.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/dlpack.hpp"
#include "python/src/errors.hpp"
#include "python/src/holder.hpp"
#include "python/src/plain_method.hpp"
#include "python/src/tensor.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// A tensor on a device, or its stored bits.
struct DeviceTensor {
  explicit DeviceTensor(cuda::DeviceTensor uploaded)
      : memory(std::move(uploaded)),
        dtype(memory.dtype()),
        shape(memory.shape().begin(), memory.shape().end()),
        strides(memory.strides().begin(), memory.strides().end()) {}

  cuda::DeviceTensor memory;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
};

// Several threads of a program may call it; one at a time is let in.
class Upload {
 public:
  Upload(Owner owner, cuda::Upload upload) : owner_(std::move(owner)), upload_(std::move(upload)) {}

  Result<std::optional<cuda::DeviceTensor>> next() {
    const std::scoped_lock lock(mutex_);
    return upload_.next();
  }
  cuda::UploadReport report() {
    const std::scoped_lock lock(mutex_);
    return upload_.report();
  }

 private:
  const Owner owner_;  // of the checkpoint, which must be there to the end
  std::mutex mutex_;
  cuda::Upload upload_;
};

std::optional<cuda::Way> way_called(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  for (const cuda::Way way : {cuda::Way::mapping, cuda::Way::registered, cuda::Way::slots})
    if (to_string(way) == *name) return way;
  raise(ErrorCode::invalid_argument,
        "way is \"mapping\", \"registered\", \"slots\" or None, not \"" + *name + "\"");
}

cuda::Uploader make_uploader(int device, std::uint64_t slots, std::uint64_t slot_bytes,
                             unsigned threads, std::uint64_t register_bytes,
                             const std::optional<std::string>& way, const nb::bytes& library) {
  cuda::UploaderOptions options;
  options.device = device;
  options.slots = slots;
  options.slot_bytes = slot_bytes;
  options.threads = threads;
  options.register_bytes = register_bytes;
  options.way = way_called(way);
  options.library = text_of(library);
  return value_or_raise(without_gil([&] { return cuda::Uploader::create(options); }));
}

std::unique_ptr<Upload> start(cuda::Uploader& uploader, const OpenCheckpoint& opened,
                              const nb::list& tensors) {
  value_or_raise(opened.owner->check_bytes());
  std::vector<TensorView> views;
  views.reserve(tensors.size());
  for (nb::handle tensor : tensors) views.push_back(nb::cast<const Tensor&>(tensor).view());
  return std::make_unique<Upload>(
      opened.owner,
      value_or_raise(without_gil([&] { return uploader.start(opened.checkpoint(), views); })));
}

std::optional<DeviceTensor> next_of(Upload& upload) {
  std::optional<cuda::DeviceTensor> tensor =
      value_or_raise(without_gil([&] { return upload.next(); }));
  if (!tensor) return std::nullopt;
  return DeviceTensor(std::move(*tensor));
}

nb::dict report_of(Upload& upload) {
  const cuda::UploadReport report = without_gil([&] { return upload.report(); });
  nb::dict fields;
  fields["tensors"] = report.tensors;
  fields["bytes"] = report.bytes;
  fields["mapping_bytes"] = report.mapping_bytes;
  fields["registered_bytes"] = report.registered_bytes;
  fields["slot_bytes"] = report.slot_bytes;
  fields["registrations"] = report.registrations;
  fields["refused_registrations"] = report.refused_registrations;
  fields["refusal"] = report.refusal;
  fields["driver_calls"] = report.driver_calls;
  fields["seconds_waiting_for_fill"] = report.seconds_waiting_for_fill;
  fields["seconds_waiting_for_copies"] = report.seconds_waiting_for_copies;
  return fields;
}

DeviceTensor device_bits(const DeviceTensor& tensor) {
  std::vector<std::int64_t> dims = tensor.shape;
  dims.insert(dims.end(), tensor.strides.begin(), tensor.strides.end());
  const TensorView view(tensor.dtype, tensor.shape.size(), dims.data(), nullptr, 0, 0);
  const TensorSlice stored = value_or_raise(view.bits());
  DeviceTensor bits = tensor;
  bits.dtype = stored.dtype();
  bits.shape.assign(stored.shape().begin(), stored.shape().end());
  bits.strides.assign(stored.strides().begin(), stored.strides().end());
  return bits;
}

nb::object device_to_torch(const DeviceTensor& tensor) {
  if (is_blocked(tensor.dtype)) return device_to_torch(device_bits(tensor));
  return nb::module_::import_("weightmap.cuda").attr("_to_torch")(tensor);
}

nb::object device_to_dlpack(const DeviceTensor& tensor, const nb::kwargs& kwargs) {
  using Array = nb::ndarray<nb::array_api>;
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  // The address of memory of the device, which nobody here looks into.
  void* const data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(tensor.memory.pointer()));
  const Array array(data, shape.size(), shape.data(), nb::find(tensor), tensor.strides.data(),
                    dlpack_type(tensor.dtype), nb::device::cuda::value, tensor.memory.device());
  return nb::cast(array, nb::rv_policy::reference).attr("__dlpack__")(**kwargs);
}

void bind_device_tensor(nb::module_& module) {
  nb::class_<DeviceTensor> type(module, "DeviceTensor",
                                R"(DeviceTensor()
--

A tensor in the memory of a CUDA device, row-major, given back with the last who has it.

It may outlive the uploader and the checkpoint. Whatever takes DLPack takes it, and shares the
memory. The copy to the device is done, so any stream may use it.)");
  type.def_prop_ro(
          "dtype", [](const DeviceTensor& tensor) { return to_string(tensor.dtype); },
          "As torch spells it, without the prefix; blocked ones as ggml does.")
      .def_prop_ro(
          "shape", [](const DeviceTensor& tensor) { return int_tuple(tensor.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "strides", [](const DeviceTensor& tensor) { return int_tuple(tensor.strides); },
          nb::sig("def strides(self) -> tuple[int, ...]"), "In elements.")
      .def_prop_ro("nbytes", [](const DeviceTensor& tensor) { return tensor.memory.nbytes(); })
      .def_prop_ro(
          "data_ptr", [](const DeviceTensor& tensor) { return tensor.memory.pointer(); },
          "The address on the device, a CUdeviceptr; 0 if the tensor is empty.")
      .def_prop_ro(
          "device", [](const DeviceTensor& tensor) { return tensor.memory.device(); },
          "The ordinal of the device.")
      .def("__dlpack__", device_to_dlpack,
           nb::sig("def __dlpack__(self, **kwargs: typing.Any) -> types.CapsuleType"))
      .def(
          "__dlpack_device__",
          [](const DeviceTensor& tensor) {
            return nb::make_tuple(int{nb::device::cuda::value}, tensor.memory.device());
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"));
  def_plain<device_bits>(type, "bits",
                         "The same memory as unsigned integers: what Tensor.bits() says of its "
                         "elements.");
  def_plain<device_to_torch>(type, "torch",
                             R"(A torch tensor over the same memory.

Of a blocked dtype the bytes of its blocks. UnsupportedError where torch has no such dtype.)");
}

}  // namespace

void bind_cuda(nb::module_& module) {
  bind_device_tensor(module);
  nb::class_<Upload>(module, "CudaUpload")
      .def("next", next_of, nb::sig("def next(self) -> DeviceTensor | None"))
      .def("report", report_of, nb::sig("def report(self) -> dict[str, typing.Any]"));
  nb::class_<cuda::Uploader>(module, "CudaUploader")
      .def("way", [](const cuda::Uploader& uploader) { return to_string(uploader.way()); })
      .def("start", start,
           nb::sig("def start(self, checkpoint: Checkpoint, tensors: list[Tensor], /) -> "
                   "CudaUpload"));
  module.def("cuda_uploader", make_uploader, nb::arg("device"), nb::arg("slots"),
             nb::arg("slot_bytes"), nb::arg("threads"), nb::arg("register_bytes"),
             nb::arg("way").none(), nb::arg("library"),
             nb::sig("def cuda_uploader(device: int, slots: int, slot_bytes: int, threads: int, "
                     "register_bytes: int, way: str | None, library: bytes, "
                     "/) -> CudaUploader"));
}

}  // namespace weightmap::python
