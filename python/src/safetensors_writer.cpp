#include "weightmap/safetensors_writer.hpp"

#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "weightmap/chunks.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

SharedElements shared_from(std::string_view word) {
  if (word == "refuse") return SharedElements::refuse;
  if (word == "drop") return SharedElements::drop;
  if (word == "copy") return SharedElements::copy;
  raise(ErrorCode::invalid_argument,
        "shared is \"" + std::string(word) + "\", expected \"refuse\", \"drop\" or \"copy\"");
}

nb::tuple to_tuple(const SafetensorsReport& report) {
  nb::list files;
  for (const SafetensorsReport::File& file : report.files)
    files.append(nb::make_tuple(to_bytes(file.path.native()), file.bytes));
  nb::dict dropped;
  for (const auto& [name, kept] : report.dropped) dropped[to_str(name)] = to_str(kept);
  return nb::make_tuple(files, report.tensor_bytes, dropped);
}

// Used by one thread, attached to the interpreter.
class SafetensorsWriter {
 public:
  SafetensorsWriter() = default;
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void add(nb::handle name, std::string_view dtype, const nb::tuple& shape, std::uintptr_t address,
           std::size_t nbytes, nb::object owner) {
    const std::optional<DType> known = dtype_from_string(dtype);
    if (!known) raise(ErrorCode::unsupported, "there is no dtype " + std::string(dtype));
    SafetensorsTensor tensor{.name = to_utf8(name), .dtype = *known};
    for (nb::handle dim : shape) tensor.shape.push_back(nb::cast<std::int64_t>(dim));
    tensor.content = RecordContent::bytes({reinterpret_cast<const std::byte*>(address), nbytes});
    tensors_.push_back(std::move(tensor));
    kept_.push_back(std::move(owner));
  }

  void add_mapped(nb::handle name, nb::object tensor) {
    const Tensor& mapped = nb::cast<const Tensor&>(tensor);
    value_or_raise(mapped.owner->check_bytes());
    const auto& reserved = mapped.owner->checkpoint().info().reserved;
    if (reserved && reserved->is_unwritten(mapped.named.storage))
      raise(mapped.named.about(
          {ErrorCode::unsupported, "its storage was reserved and is not written yet"}));
    tensors_.push_back(value_or_raise(SafetensorsTensor::of(to_utf8(name), mapped.view())));
    kept_.push_back(std::move(tensor));
  }

  // Adds the whole of a tensor that lies in several pieces.
  void add_chunked(nb::object opened, nb::handle name) {
    const Checkpoint& checkpoint = nb::cast<const OpenCheckpoint&>(opened).with_bytes();
    const std::string& kept = names_.emplace_back(to_utf8(name));
    const WholeTensor tensor = value_or_raise(whole_tensor(checkpoint, kept));
    tensors_.push_back({.name = kept,
                        .dtype = tensor.dtype,
                        .shape = tensor.sizes,
                        .content = value_or_raise(content_of(checkpoint, kept))});
    kept_.push_back(std::move(opened));
  }

  nb::tuple write(const nb::bytes& path, const nb::dict& metadata, std::uint64_t max_file_bytes,
                  std::string_view shared, bool durable, nb::handle progress) {
    SafetensorsMetadata texts;
    for (const auto& [key, text] : metadata) texts.emplace_back(to_utf8(key), to_utf8(text));
    const std::filesystem::path file = text_of(path);
    LongCall call(progress);
    SafetensorsOptions options;
    options.max_file_bytes = max_file_bytes;
    options.shared = shared_from(shared);
    options.file.durable = durable;
    options.progress = call.progress();
    return to_tuple(value_or_raise(
        call.run([&] { return write_safetensors(std::move(tensors_), texts, file, options); })));
  }

 private:
  std::vector<SafetensorsTensor> tensors_;
  std::deque<std::string> names_;  // that contents borrow
  std::vector<nb::object> kept_;   // whose bytes and shapes are borrowed
};

}  // namespace

void bind_safetensors_writer(nb::module_& module) {
  nb::class_<SafetensorsWriter>(module, "SafetensorsWriter",
                                "Tensors that are going to be written, once.")
      .def(nb::init<>())
      .def("add", &SafetensorsWriter::add,
           nb::sig("def add(self, name: str, dtype: str, shape: tuple[int, ...], address: int, "
                   "nbytes: int, owner: object, /) -> None"))
      .def("add_mapped", &SafetensorsWriter::add_mapped,
           nb::sig("def add_mapped(self, name: str, tensor: Tensor, /) -> None"))
      .def("add_chunked", &SafetensorsWriter::add_chunked,
           nb::sig("def add_chunked(self, opened: Checkpoint, name: str, /) -> None"))
      .def("write", &SafetensorsWriter::write, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg().none(),
           "Files with their bytes, the bytes of the tensors, and the names that were dropped with "
           "those that were kept.",
           nb::sig("def write(self, path: bytes, metadata: dict[str, str], max_file_bytes: int, "
                   "shared: str, durable: bool, progress: collections.abc.Callable[[int, int], "
                   "object] | None, /) -> tuple[list[tuple[bytes, int]], int, dict[str, str]]"));
}

}  // namespace weightmap::python
