#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/machine.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

DType torch_dtype(std::string_view name) {
  const std::optional<DType> dtype = dtype_from_string(name);
  if (!dtype || is_blocked(*dtype))
    raise(ErrorCode::unsupported, "torch has no dtype " + std::string(name));
  return *dtype;
}

// The size of one call of a write function of Python, which gets a copy.
constexpr std::size_t part_bytes = std::size_t{8} << 20;

nb::bytes copy_of(std::span<const std::byte> content) {
  return nb::bytes(reinterpret_cast<const char*>(content.data()), content.size());
}

// Values are numbers here, in the order in which they were made. Used by one thread, attached to
// the interpreter.
class Writer {
 public:
  using Number = std::size_t;

  Writer(std::uint64_t alignment, bool crc32, bool durable, std::string_view byte_order,
         bool mark_reserved);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // None, a bool, an int, a float or a str. One text for each str object, which is kept.
  Number leaf(nb::handle object);
  Number tuple_of(const nb::list& elements) { return add(build_.tuple(values(elements))); }
  Number list_of(const nb::list& elements) { return add(build_.list(values(elements))); }
  Number dict_of(const nb::list& items) { return add(build_.dict(values(items))); }
  Number global(std::string_view module, std::string_view name) {
    return add(build_.global(module, name));
  }
  Number call_of(Number callable, Number arguments, const nb::list& elements, const nb::list& items,
                 nb::handle state, bool is_new_object);
  // What is added to a list, a dict or a call that was made empty, since it holds itself.
  void fill(Number made, const nb::list& elements, const nb::list& items, nb::handle state);
  Number parameter(Number tensor, bool requires_grad) {
    return add(writer_.parameter(value(tensor), requires_grad));
  }

  // These answer the number of a storage, which is not that of a value.
  std::size_t add_storage(std::uintptr_t address, std::size_t nbytes, nb::object owner,
                          nb::handle location, bool is_reserved);
  std::size_t mapped_storage(const OpenCheckpoint& opened, nb::object tag, nb::object key,
                             nb::object location, bool is_reserved);

  Number storage(std::size_t number, Number type, std::int64_t numel);
  Number tensor(std::size_t number, std::string_view dtype, std::int64_t storage_offset,
                const nb::tuple& sizes, const nb::tuple& strides, bool requires_grad);
  Number mapped_tensor(const Tensor& tensor, bool is_reserved);
  Number reserved_tensor(std::string_view dtype, const nb::tuple& sizes);

  WritePlan write_file(Number root, const nb::bytes& path, nb::handle progress);
  WritePlan write_through(Number root, const nb::object& write, nb::handle progress);

 private:
  struct Stored {
    StorageTexts texts;
    std::optional<DType> dtype = {};  // of the tensors over it, if it is mapped
  };
  using Place = std::pair<const Holder*, std::size_t>;

  Number add(Value value) {
    values_.push_back(value);
    return values_.size() - 1;
  }
  const Value& value(Number number) const { return values_.at(number); }
  // Until the next call.
  std::span<const Value> values(const nb::list& numbers);
  void append(const nb::list& numbers);  // to scratch_
  Number text(nb::handle object);
  Number integer(nb::handle object);
  // The texts of a reference to a storage, as the objects that torch.save would have for them.
  struct Texts {
    nb::object tag, key, location;
  };
  Texts texts_of_next(nb::object location) const;
  std::size_t add_storage(RecordContent content, const Texts& texts);
  std::size_t mapped_storage(const Owner& owner, std::size_t index, const Texts& texts,
                             bool is_reserved);
  void check_dtype(std::size_t number, const Tensor& tensor);
  std::optional<Value> metadata_of(const TensorView& view);
  WritePlan done(Result<WritePlan> written);

  Progress progress_;
  CheckpointWriter writer_;
  ValueBuilder& build_;
  std::vector<Value> values_;
  std::vector<Value> scratch_;
  std::vector<std::int64_t> dims_;
  std::unordered_map<PyObject*, Number> texts_;
  std::vector<Stored> storages_;
  std::map<Place, std::size_t> mapped_;
  std::vector<nb::object> kept_;  // the str objects, and whose bytes are borrowed
  std::vector<Owner> mappings_;   // likewise
  bool is_written_ = false;
};

CheckpointWriterOptions options_of(std::uint64_t alignment, bool crc32, bool durable,
                                   std::string_view byte_order, bool mark_reserved,
                                   Progress progress) {
  CheckpointWriterOptions options;
  options.alignment = alignment;
  options.crc32 = crc32;
  options.file.durable = durable;
  options.byte_order = byte_order == "big" ? ByteOrder::big : ByteOrder::little;
  options.mark_reserved = mark_reserved;
  options.progress = std::move(progress);
  return options;
}

Writer::Writer(std::uint64_t alignment, bool crc32, bool durable, std::string_view byte_order,
               bool mark_reserved)
    : writer_(options_of(alignment, crc32, durable, byte_order, mark_reserved,
                         [this](std::uint64_t done, std::uint64_t all) {
                           return !progress_ || progress_(done, all);
                         })),
      build_(writer_.values()) {}

void Writer::append(const nb::list& numbers) {
  for (nb::handle number : numbers) {
    const std::size_t index = PyLong_AsSize_t(number.ptr());
    if (index == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr)
      throw nb::python_error();
    scratch_.push_back(value(index));
  }
}

std::span<const Value> Writer::values(const nb::list& numbers) {
  scratch_.clear();
  append(numbers);
  return scratch_;
}

Writer::Number Writer::leaf(nb::handle object) {
  if (PyUnicode_Check(object.ptr())) return text(object);
  if (object.is_none()) return add(build_.none());
  if (PyBool_Check(object.ptr())) return add(build_.boolean(object.ptr() == Py_True));
  if (PyFloat_Check(object.ptr())) return add(build_.real(PyFloat_AsDouble(object.ptr())));
  return integer(object);
}

Writer::Number Writer::text(nb::handle object) {
  const auto known = texts_.find(object.ptr());
  if (known != texts_.end()) return known->second;
  Py_ssize_t size = 0;
  Number made;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(object.ptr(), &size)) {
    made = add(build_.string({utf8, static_cast<std::size_t>(size)}));
  } else {  // lone surrogates
    PyErr_Clear();
    made = add(build_.string(to_utf8(object)));
  }
  kept_.push_back(nb::borrow(object));
  texts_.emplace(object.ptr(), made);
  return made;
}

Writer::Number Writer::integer(nb::handle object) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) {
    if (small == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return add(build_.integer(small));
  }
  // pickle's form has as many bytes as the sign needs and no redundant one.
  const auto bits = nb::cast<std::size_t>(object.attr("bit_length")());
  nb::kwargs is_signed;
  is_signed["signed"] = true;
  const nb::bytes padded(object.attr("to_bytes")(bits / 8 + 1, "little", **is_signed));
  std::span<const std::byte> digits(reinterpret_cast<const std::byte*>(padded.c_str()),
                                    padded.size());
  if (overflow < 0 && digits.back() == std::byte{0xFF} &&
      (digits[digits.size() - 2] & std::byte{0x80}) != std::byte{0})
    digits = digits.first(digits.size() - 1);
  return add(build_.big_integer(digits));
}

Writer::Number Writer::call_of(Number callable, Number arguments, const nb::list& elements,
                               const nb::list& items, nb::handle state, bool is_new_object) {
  const Number made = add(build_.object({.callable = value(callable),
                                         .arguments = value(arguments),
                                         .is_new_object = is_new_object}));
  fill(made, elements, items, state);
  return made;
}

void Writer::fill(Number made, const nb::list& elements, const nb::list& items, nb::handle state) {
  ValueBuilder::Contents contents;
  scratch_.clear();
  append(elements);
  append(items);
  contents.elements = std::span<const Value>(scratch_).first(elements.size());
  contents.items = std::span<const Value>(scratch_).subspan(elements.size());
  if (!state.is_none()) contents.state = value(nb::cast<Number>(state));
  build_.fill(value(made), contents);
}

Writer::Texts Writer::texts_of_next(nb::object location) const {
  return {checked(PyUnicode_InternFromString("storage")), nb::str(nb::int_(storages_.size())),
          std::move(location)};
}

std::size_t Writer::add_storage(RecordContent content, const Texts& texts) {
  const Stored stored{
      {value(text(texts.tag)), value(text(texts.key)), value(text(texts.location))}};
  storages_.push_back(stored);
  return writer_.add_storage(std::move(content), stored.texts);
}

std::size_t Writer::add_storage(std::uintptr_t address, std::size_t nbytes, nb::object owner,
                                nb::handle location, bool is_reserved) {
  const Texts texts = texts_of_next(nb::borrow(location));
  if (is_reserved) return add_storage(RecordContent::reserved(nbytes), texts);
  kept_.push_back(std::move(owner));
  return add_storage(RecordContent::bytes({reinterpret_cast<const std::byte*>(address), nbytes}),
                     texts);
}

std::size_t Writer::mapped_storage(const Owner& owner, std::size_t index, const Texts& texts,
                                   bool is_reserved) {
  const auto [place, is_new] = mapped_.try_emplace({owner.get(), index}, storages_.size());
  if (!is_new) return place->second;
  if (mappings_.empty() || mappings_.back() != owner) mappings_.push_back(owner);
  value_or_raise(owner->check_bytes());
  const Checkpoint& checkpoint = owner->checkpoint();
  const NamedStorage storage = Backing(checkpoint).storage(index);
  const std::uint64_t position =
      checkpoint.source(storage.source).mapping_offset + storage.payload_offset;
  const std::span<const std::byte> content =
      storage.nbytes == 0 ? std::span<const std::byte>()
                          : checkpoint.mapping().subspan(position, storage.nbytes);
  // Storages that are not filled yet stay reserved in the copy.
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  const bool is_room = is_reserved || (reserved && reserved->is_unwritten(storage.key));
  return add_storage(
      is_room ? RecordContent::reserved(storage.nbytes) : RecordContent::bytes(content), texts);
}

std::size_t Writer::mapped_storage(const OpenCheckpoint& opened, nb::object tag, nb::object key,
                                   nb::object location, bool is_reserved) {
  const std::string known = to_utf8(key);
  const std::optional<std::size_t> index = opened.owner->find_storage(known);
  if (!index) raise(ErrorCode::corrupt, "the archive has no record data/" + known);
  Texts texts = texts_of_next(std::move(location));
  texts.tag = std::move(tag);
  if (known == std::to_string(storages_.size())) texts.key = std::move(key);
  return mapped_storage(opened.owner, *index, texts, is_reserved);
}

Writer::Number Writer::storage(std::size_t number, Number type, std::int64_t numel) {
  const StorageTexts& texts = storages_.at(number).texts;
  const std::array id{texts.tag, value(type), texts.key, texts.location, build_.integer(numel)};
  return add(build_.persistent_id(build_.tuple(id)));
}

Writer::Number Writer::tensor(std::size_t number, std::string_view dtype,
                              std::int64_t storage_offset, const nb::tuple& sizes,
                              const nb::tuple& strides, bool requires_grad) {
  const DType known = torch_dtype(dtype);
  if (number >= storages_.size() || sizes.size() != strides.size())
    raise(ErrorCode::invalid_argument, "a tensor needs a storage, and as many strides as sizes");
  dims_.clear();
  for (const nb::tuple& dims : {sizes, strides})
    for (nb::handle dim : dims) dims_.push_back(nb::cast<std::int64_t>(dim));
  const std::span<const std::int64_t> dims(dims_);
  return add(writer_.tensor(number, {.dtype = known,
                                     .storage_offset = storage_offset,
                                     .sizes = dims.first(sizes.size()),
                                     .strides = dims.subspan(sizes.size()),
                                     .requires_grad = requires_grad}));
}

void Writer::check_dtype(std::size_t number, const Tensor& tensor) {
  std::optional<DType>& known = storages_[number].dtype;
  const DType dtype = tensor.view().dtype();
  if (!known) known = dtype;
  if (*known != dtype)
    raise(ErrorCode::unsupported, "tensors of two types, " + std::string(to_string(*known)) +
                                      " and " + std::string(to_string(dtype)) +
                                      ", share one storage, which torch cannot load");
}

std::optional<Value> Writer::metadata_of(const TensorView& view) {
  std::vector<Value> items;
  const auto note = [&](bool is_set, std::string_view name) {
    if (!is_set) return;
    items.push_back(build_.string(name));
    items.push_back(build_.boolean(true));
  };
  note(view.is_conjugate(), "conj");
  note(view.is_negative(), "neg");
  if (items.empty()) return std::nullopt;
  return build_.dict(items);
}

Writer::Number Writer::mapped_tensor(const Tensor& tensor, bool is_reserved) {
  const TensorView& view = tensor.view();
  if (view.is_foreign_byte_order())
    raise(ErrorCode::unsupported,
          "its elements have the other byte order, which one file cannot have beside this one's; "
          "save the Checkpoint as a whole, or tensor.numpy()");
  if (is_blocked(view.dtype()))
    raise(ErrorCode::unsupported, "torch has no dtype " + std::string(to_string(view.dtype())) +
                                      "; save tensor.bits(), the bytes of its blocks");
  PyObject* location = to_str(tensor.named.location).release().ptr();
  PyUnicode_InternInPlace(&location);
  const std::size_t number = mapped_storage(tensor.owner, tensor.named.storage_index,
                                            texts_of_next(nb::steal(location)), is_reserved);
  check_dtype(number, tensor);
  const bool is_parameter = tensor.named.is_parameter && !tensor.part;
  const Value made = writer_.tensor(
      number, {.dtype = view.dtype(),
               .storage_offset = tensor.named.storage_offset,
               .sizes = view.shape(),
               .strides = view.strides(),
               .requires_grad = tensor.named.requires_grad && !is_parameter && !tensor.part,
               .metadata = metadata_of(view)});
  return add(is_parameter ? writer_.parameter(made, tensor.named.requires_grad) : made);
}

Writer::Number Writer::reserved_tensor(std::string_view dtype, const nb::tuple& sizes) {
  const DType known = torch_dtype(dtype);
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides(sizes.size());
  for (nb::handle size : sizes) dims.push_back(nb::cast<std::int64_t>(size));
  std::uint64_t nbytes = element_size(known);
  std::int64_t step = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    if (dims[i] < 0 || __builtin_mul_overflow(step, std::max<std::int64_t>(dims[i], 1), &step) ||
        __builtin_mul_overflow(nbytes, static_cast<std::uint64_t>(dims[i]), &nbytes))
      raise(ErrorCode::invalid_argument, "no tensor has this shape");
  }
  const nb::object location = checked(PyUnicode_InternFromString("cpu"));
  const std::size_t number = add_storage(RecordContent::reserved(nbytes), texts_of_next(location));
  return add(writer_.tensor(number, {.dtype = known, .sizes = dims, .strides = strides}));
}

WritePlan Writer::done(Result<WritePlan> written) {
  progress_ = {};
  return value_or_raise(std::move(written));
}

WritePlan Writer::write_file(Number root, const nb::bytes& path, nb::handle progress) {
  if (std::exchange(is_written_, true)) raise(ErrorCode::invalid_argument, "is written already");
  const std::filesystem::path file = text_of(path);
  const Value tree = value(root);
  LongCall call(progress);
  progress_ = call.progress();
  return done(call.run([&] { return std::move(writer_).write(tree, file); }));
}

// In the thread that called, since what Python has to write to may be bound to it.
WritePlan Writer::write_through(Number root, const nb::object& write, nb::handle progress) {
  if (std::exchange(is_written_, true)) raise(ErrorCode::invalid_argument, "is written already");
  const Value tree = value(root);
  std::exception_ptr raised;
  const auto with_python = [&](const auto& work) {
    const nb::gil_scoped_acquire acquire;
    try {
      work();
      return true;
    } catch (...) {
      raised = std::current_exception();
      return false;
    }
  };
  if (!progress.is_none())
    progress_ = [&](std::uint64_t done, std::uint64_t all) {
      return with_python([&] { progress(done, all); });
    };
  const auto take = [&](std::span<const std::byte> content) -> Result<void> {
    const bool taken = with_python([&] {
      while (!content.empty()) {
        const nb::bytes part = copy_of(content.first(std::min(content.size(), part_bytes)));
        const nb::object answer = write(part);
        // A raw file may take less than it was given, and says how much.
        const std::size_t count = nb::isinstance<nb::int_>(answer)
                                      ? std::min(nb::cast<std::size_t>(answer), nb::len(part))
                                      : nb::len(part);
        content = content.subspan(count);
      }
    });
    if (taken) return {};
    return failure(ErrorCode::io, "the function that writes raised an exception");
  };
  Result<WritePlan> written = without_gil([&] { return std::move(writer_).write(tree, take); });
  if (raised) std::rethrow_exception(raised);
  return done(std::move(written));
}

nb::list storages_of(const WritePlan& plan) {
  nb::list storages;
  for (const WrittenStorage& storage : plan.storages)
    storages.append(nb::make_tuple(storage.offset, storage.nbytes, storage.is_reserved));
  return storages;
}

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<WritePlan>(module, "Written", "What a Writer has written.")
      .def_ro("archive_bytes", &WritePlan::archive_bytes)
      .def("storages", storages_of, "(offset, nbytes, whether it is reserved) of each.",
           nb::sig("def storages(self) -> list[tuple[int, int, bool]]"));
  nb::class_<Writer>(module, "Writer",
                     "A checkpoint that is being put together. Values are numbers here.")
      .def(nb::init<std::uint64_t, bool, bool, std::string_view, bool>(), nb::arg("alignment"),
           nb::arg("crc32"), nb::arg("durable"), nb::arg("byte_order"), nb::arg("mark_reserved"))
      .def("leaf", &Writer::leaf, nb::arg().none(),
           nb::sig("def leaf(self, object: None | bool | int | float | str, /) -> int"))
      .def("tuple_of", &Writer::tuple_of,
           nb::sig("def tuple_of(self, elements: list[int], /) -> int"))
      .def("list_of", &Writer::list_of, nb::sig("def list_of(self, elements: list[int], /) -> int"))
      .def("dict_of", &Writer::dict_of, "Of key, value, key, value ...",
           nb::sig("def dict_of(self, items: list[int], /) -> int"))
      .def("global_name", &Writer::global,
           nb::sig("def global_name(self, module: str, name: str, /) -> int"))
      .def("fill", &Writer::fill, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::sig("def fill(self, made: int, elements: list[int], items: list[int], state: int | "
                   "None, /) -> None"))
      .def("call_of", &Writer::call_of, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg().none(), nb::arg(),
           nb::sig("def call_of(self, callable: int, arguments: int, elements: list[int], items: "
                   "list[int], state: int | None, is_new_object: bool, /) -> int"))
      .def("parameter", &Writer::parameter,
           nb::sig("def parameter(self, tensor: int, requires_grad: bool, /) -> int"))
      .def("add_storage",
           nb::overload_cast<std::uintptr_t, std::size_t, nb::object, nb::handle, bool>(
               &Writer::add_storage),
           nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
           nb::sig("def add_storage(self, address: int, nbytes: int, owner: object, location: str, "
                   "is_reserved: bool, /) -> int"))
      .def("mapped_storage",
           nb::overload_cast<const OpenCheckpoint&, nb::object, nb::object, nb::object, bool>(
               &Writer::mapped_storage),
           nb::sig("def mapped_storage(self, opened: Checkpoint, tag: str, key: str, location: "
                   "str, is_reserved: bool, /) -> int"))
      .def("storage", &Writer::storage,
           nb::sig("def storage(self, number: int, type: int, numel: int, /) -> int"))
      .def("tensor", &Writer::tensor,
           nb::sig("def tensor(self, storage: int, dtype: str, storage_offset: int, sizes: "
                   "tuple[int, ...], strides: tuple[int, ...], requires_grad: bool, /) -> int"))
      .def("mapped_tensor", &Writer::mapped_tensor,
           nb::sig("def mapped_tensor(self, tensor: Tensor, is_reserved: bool, /) -> int"))
      .def("reserved_tensor", &Writer::reserved_tensor,
           nb::sig("def reserved_tensor(self, dtype: str, sizes: tuple[int, ...], /) -> int"))
      .def("write_file", &Writer::write_file, nb::arg(), nb::arg(), nb::arg().none(),
           nb::sig("def write_file(self, root: int, path: bytes, progress: "
                   "collections.abc.Callable[[int, int], object] | None, /) -> Written"))
      .def("write_through", &Writer::write_through, nb::arg(), nb::arg(), nb::arg().none(),
           nb::sig("def write_through(self, root: int, write: "
                   "collections.abc.Callable[[bytes], object], progress: "
                   "collections.abc.Callable[[int, int], object] | None, /) -> Written"));
}

}  // namespace weightmap::python
