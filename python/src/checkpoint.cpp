#include "python/src/checkpoint.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/evaluator.hpp"
#include "python/src/exported_memory.hpp"
#include "python/src/long_call.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/options.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

OpenCheckpoint hold(Result<Checkpoint> opened, Origin origin) {
  if (!opened) raise(opened.error());
  return {std::make_shared<const Holder>(std::move(*opened), std::move(origin))};
}

bool reads_the_file(const OpenOptions& options) {
  const Result<OpenOptions> complete = with_defaults(options);
  return complete && (complete->verify == Verify::crc || *complete->populate || *complete->locked);
}

// Holds the result of `open`, which is called without the GIL and gets the options.
template <class Open>
OpenCheckpoint hold(Origin origin, nb::handle progress, const Open& open) {
  if (reads_the_file(origin.options)) {
    LongCall call(progress);
    OpenOptions options = origin.options;
    options.progress = call.progress();
    Result<Checkpoint> opened = call.run([&] { return open(options); });
    return hold(std::move(opened), std::move(origin));
  }
  Result<Checkpoint> opened = without_gil([&] { return open(origin.options); });
  return hold(std::move(opened), std::move(origin));
}

OpenCheckpoint open(const nb::bytes& path, const nb::dict& options, bool like_torch,
                    nb::handle progress) {
  const std::filesystem::path file = text_of(path);
  return hold({text_of(path), read_options(options, like_torch)}, progress,
              [&](const OpenOptions& read) { return Checkpoint::open(file, read); });
}

OpenCheckpoint open_files(const std::vector<nb::bytes>& paths, const nb::dict& options,
                          bool like_torch, nb::handle progress) {
  std::vector<std::filesystem::path> files;
  for (const nb::bytes& path : paths) files.push_back(text_of(path));
  const std::string name = files.empty() ? std::string() : files.front().native();
  return hold({name, read_options(options, like_torch)}, progress,
              [&](const OpenOptions& read) { return Checkpoint::open_files(files, read); });
}

OpenCheckpoint open_descriptor(int descriptor, const nb::dict& options, bool like_torch,
                               nb::handle progress) {
  return hold(
      {"descriptor " + std::to_string(descriptor), read_options(options, like_torch)}, progress,
      [&](const OpenOptions& read) { return Checkpoint::open_descriptor(descriptor, read); });
}

OpenCheckpoint open_memory(nb::handle buffer, bool trusted, const nb::dict& options,
                           nb::handle progress) {
  const ExportedMemory memory = export_memory(buffer, trusted);
  return hold({"memory", read_options(options, false)}, progress, [&](const OpenOptions& read) {
    return Checkpoint::open_memory(memory.bytes, memory.owner, read);
  });
}

OpenCheckpoint reopen(const OpenCheckpoint& self) {
  return hold(without_gil([&] { return self.checkpoint().reopen(); }), self.owner->origin());
}

nb::tuple origin_of(const OpenCheckpoint& self) {
  const Origin& origin = self.owner->origin();
  nb::list paths;
  if (!origin.is_remote)
    for (const std::filesystem::path& path : Backing(self.checkpoint()).opened_paths())
      paths.append(to_bytes(path.native()));
  return nb::make_tuple(paths, to_dict(origin.options));
}

nb::object reduce(nb::handle self) {
  return nb::module_::import_("weightmap._pickling").attr("reduce_core")(self);
}

// Raises the fault of a tensor that has one, so that no Tensor is without its bytes.
Tensor tensor_of(const OpenCheckpoint& self, const NamedTensor& named) {
  value_or_raise(named.view.check_no_fault());
  return {self.owner, named};
}

std::optional<Tensor> find(const OpenCheckpoint& self, const nb::str& name) {
  const std::string utf8 = to_utf8(name);
  if (!self.checkpoint().contains(utf8)) return std::nullopt;
  Result<NamedTensor> named = self.checkpoint().get(utf8);
  if (!named && named.error().code == ErrorCode::invalid_argument) return std::nullopt;
  return tensor_of(self, value_or_raise(std::move(named)));
}

// True if one tensor alone has this name, without looking it up.
bool contains(const OpenCheckpoint& self, const nb::str& name) {
  const std::string utf8 = to_utf8(name);
  return self.checkpoint().contains(utf8) && whole_tensor(self.checkpoint(), utf8);
}

void check_index(const OpenCheckpoint& self, std::size_t index) {
  if (index >= self.checkpoint().tensors().size()) throw nb::index_error("no tensor of this index");
}

Tensor at(const OpenCheckpoint& self, std::size_t index) {
  check_index(self, index);
  return tensor_of(self, self.checkpoint().tensors()[index]);
}

struct Path {
  explicit Path(const nb::tuple& path) {
    for (nb::handle part : path) {
      if (nb::isinstance<nb::int_>(part)) {
        int overflow = 0;
        parts.emplace_back(std::int64_t{PyLong_AsLongLongAndOverflow(part.ptr(), &overflow)});
        if (overflow != 0)
          raise(ErrorCode::invalid_argument, "no tensor's path has an integer of over 64 bits");
      } else {
        parts.emplace_back(texts.emplace_back(to_utf8(part)));
      }
    }
  }
  std::vector<PathPart> parts;
  std::deque<std::string> texts;  // which the parts borrow
};

Tensor get_path(const OpenCheckpoint& self, const nb::tuple& path) {
  return tensor_of(self, value_or_raise(self.checkpoint().get_path(Path(path).parts)));
}

nb::list names_of(const OpenCheckpoint& self) {
  nb::list names;
  for (std::size_t i = 0; i < self.checkpoint().tensors().size(); ++i)
    names.append(to_str(tensor_name(self.checkpoint(), i)));
  return names;
}

nb::tuple shape_of_piece(const OpenCheckpoint& self, std::size_t index) {
  check_index(self, index);
  const std::string_view name = tensor_name(self.checkpoint(), index);
  return nb::tuple(nb::cast(value_or_raise(whole_tensor(self.checkpoint(), name)).sizes));
}

nb::tuple path_of(const OpenCheckpoint& self, std::size_t index) {
  check_index(self, index);
  return to_python(self.checkpoint().path(index));
}

Value values_of(const OpenCheckpoint& self) {
  const Checkpoint& checkpoint = self.checkpoint();
  return value_or_raise(without_gil([&] { return checkpoint.values(); }));
}

nb::object evaluate_from(const OpenCheckpoint& self, nb::handle machine, const nb::tuple& path) {
  const Path keys(path);
  const std::optional<Value> from = find_value(values_of(self), keys.parts);
  if (!from) raise(ErrorCode::invalid_argument, "has nothing at this path");
  return evaluate(self.owner, machine, *from);
}

nb::object look(const OpenCheckpoint& self, const nb::str& name) {
  const std::string text = to_utf8(name);
  const std::optional<FoundValue> found = find_value(values_of(self), text);
  if (!found) return nb::none();
  return nb::make_tuple(to_python(found->path), to_str(type_name_of(found->value)));
}

nb::tuple left_out_values(const OpenCheckpoint& self) {
  return nb::tuple(to_strs(left_out_values(self.checkpoint())));
}

nb::dict info(const OpenCheckpoint& self) {
  const CheckpointInfo& info = self.checkpoint().info();
  nb::dict fields;
  fields["format"] = to_string(info.format);
  fields["version"] = info.version;
  fields["format_version"] = info.format_version;
  fields["byteorder"] = info.byteorder;
  fields["byteorder_assumed"] = info.byteorder_assumed;
  fields["storage_alignment"] = info.storage_alignment;
  fields["tensors"] = info.tensors;
  fields["storages"] = info.storages;
  fields["tensor_bytes"] = info.tensor_bytes;
  fields["file_bytes"] = info.file_bytes;
  fields["pickle_bytes"] = info.pickle_bytes;
  fields["unread_bytes"] = info.unread_bytes;
  fields["duplicate_keys"] = info.duplicate_keys;
  fields["unsupported"] = nb::tuple(to_strs(info.unsupported));
  fields["not_opened"] = nb::tuple(to_strs(info.not_opened));
  fields["tensors_not_indexed"] = info.tensors_not_indexed;
  fields["sharing"] = to_string(info.sharing);
  fields["sharing_fell_back"] = info.sharing_fell_back;
  fields["writable"] = info.writable;
  fields["protection"] = to_string(info.protection);
  return fields;
}

nb::dict stats(const OpenCheckpoint& self) {
  const OpenStats& stats = self.checkpoint().stats();
  nb::dict fields;
  fields["strategy"] = to_string(stats.strategy);
  fields["storages_calculated"] = stats.storages_calculated;
  fields["storages_by_directory"] = stats.storages_by_directory;
  fields["storages_by_header"] = stats.storages_by_header;
  fields["local_headers_read"] = stats.local_headers_read;
  fields["local_headers_verified"] = stats.local_headers_verified;
  fields["cache_hits"] = stats.cache_hits;
  fields["reads"] = stats.reads;
  fields["bytes_read"] = stats.bytes_read;
  fields["storages_copied"] = stats.storages_copied;
  fields["bytes_copied"] = stats.bytes_copied;
  fields["verify_reads"] = stats.verify_reads;
  fields["verify_bytes_read"] = stats.verify_bytes_read;
  fields["seconds"] = seconds(stats.total);
  fields["directory_seconds"] = seconds(stats.directory);
  fields["pickle_seconds"] = seconds(stats.pickle);
  fields["catalog_seconds"] = seconds(stats.catalog);
  fields["copying_seconds"] = seconds(stats.copying);
  fields["mapping_seconds"] = seconds(stats.mapping);
  return fields;
}

void verify_headers(const OpenCheckpoint& self) {
  const Checkpoint& checkpoint = self.with_bytes();
  value_or_raise(without_gil([&] { return verify_headers(checkpoint); }));
}

nb::tuple verify_crc(const OpenCheckpoint& self, nb::handle progress) {
  const Checkpoint& checkpoint = self.with_bytes();
  LongCall call(progress);
  const CrcReport report = call.run([&] { return verify_crc(checkpoint, call.progress()); });
  if (!report.faults.empty()) raise(report.faults.front());
  return nb::make_tuple(report.storages_checked, report.storages_without_crc, report.bytes);
}

void copy_to(const OpenCheckpoint& self, const Tensor& tensor, nb::handle buffer) {
  const Checkpoint& checkpoint = self.with_bytes();
  const WritableBuffer memory(buffer);
  value_or_raise(
      without_gil([&] { return Backing(checkpoint).copy_bytes(tensor.view(), memory.bytes()); }));
}

// For tensors that Python has copied out of lent memory.
void check_unchanged_since(const OpenCheckpoint& self, const Tensor& tensor) {
  value_or_raise(check_unchanged(self.checkpoint(), tensor.view()));
}

void gather(const OpenCheckpoint& self, const nb::str& name,
            const std::vector<std::int64_t>& offsets, const std::vector<std::int64_t>& sizes,
            nb::handle buffer) {
  const Checkpoint& checkpoint = self.with_bytes();
  const WritableBuffer memory(buffer);
  const std::string text = to_utf8(name);
  value_or_raise(without_gil([&] {
    return weightmap::gather(checkpoint, text, Box{offsets, sizes}, memory.bytes());
  }));
}

nb::tuple offsets_of(const ComposedTensor& tensor) {
  if (tensor.form != ComposedTensor::Form::chunked) return nb::tuple();
  nb::list all;
  auto at = tensor.offsets.begin();
  for (std::size_t part = 0; part < tensor.part_count; ++part) {
    nb::list offsets;
    for (std::size_t dim = 0; dim < tensor.sizes.size(); ++dim) offsets.append(*at++);
    all.append(nb::tuple(offsets));
  }
  return nb::tuple(all);
}

nb::list composed_fields(const OpenCheckpoint& self) {
  nb::list all;
  for (const ComposedTensor& each : composed_tensors(self.checkpoint())) {
    nb::dict fields;
    fields["name"] = to_str(each.name);
    fields["form"] = to_string(each.form);
    fields["dtype"] = each.dtype ? nb::cast(to_string(*each.dtype)) : nb::none();
    fields["shape"] = nb::tuple(nb::cast(each.sizes));
    fields["strides"] = nb::tuple(nb::cast(each.strides));
    fields["requires_grad"] = each.requires_grad;
    fields["is_parameter"] = each.is_parameter;
    fields["is_buffer"] = each.is_buffer;
    fields["type"] = each.type;
    fields["device"] = each.device;
    fields["scale"] = each.scale;
    fields["zero_point"] = each.zero_point;
    fields["axis"] = each.axis;
    fields["is_coalesced"] = each.is_coalesced ? nb::cast(*each.is_coalesced) : nb::none();
    fields["offsets"] = offsets_of(each);
    fields["first_part"] = each.first_part;
    fields["part_count"] = each.part_count;
    all.append(fields);
  }
  return all;
}

bool has_chunks(const OpenCheckpoint& self) {
  const auto composed = composed_tensors(self.checkpoint());
  return !composed.empty() && composed.front().form == ComposedTensor::Form::chunked;
}

// The name of a whole takes the place of those of its pieces.
nb::list keys_of(const OpenCheckpoint& self) {
  nb::list keys;
  for (const std::string_view name : whole_names(self.checkpoint())) keys.append(to_str(name));
  return keys;
}

std::size_t key_count(const OpenCheckpoint& self) {
  std::size_t count = self.checkpoint().tensors().size();
  for (const ComposedTensor& whole : composed_tensors(self.checkpoint()))
    if (whole.form == ComposedTensor::Form::chunked) count -= whole.part_count - 1;
  return count;
}

nb::tuple storage_place(const OpenCheckpoint& self, std::size_t index) {
  if (index >= Backing(self.checkpoint()).storage_count())
    throw nb::index_error("no storage of this index");
  const NamedStorage storage = Backing(self.checkpoint()).storage(index);
  if (storage.fault != nullptr) raise(*storage.fault);
  return nb::make_tuple(
      self.checkpoint().source(storage.source).mapping_offset + storage.payload_offset,
      storage.nbytes);
}

nb::object find_storage(const OpenCheckpoint& self, const nb::str& key) {
  const std::optional<std::size_t> index = self.owner->find_storage(to_utf8(key));
  return index ? nb::object(storage_place(self, *index)) : nb::none();
}

nb::list files_of(const OpenCheckpoint& self) {
  nb::list files;
  const Checkpoint& checkpoint = self.checkpoint();
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i)
    if (const SourceInfo& source = checkpoint.source(i); !source.is_copy)
      files.append(
          nb::make_tuple(to_bytes(source.path.native()), generation_fields(source.generation)));
  return files;
}

}  // namespace

nb::tuple generation_fields(const Generation& generation) {
  return nb::make_tuple(generation.device, generation.inode, generation.size, generation.mtime_ns,
                        generation.ctime_ns);
}

void bind_checkpoint(nb::module_& module) {
  nb::class_<OpenCheckpoint> checkpoint(module, "Checkpoint", nb::is_weak_referenceable());
  checkpoint
      .def(
          "id",
          [](const OpenCheckpoint& c) { return reinterpret_cast<std::uintptr_t>(c.owner.get()); },
          "Of what is open: the same for all that share it, as long as one of them is there.")
      .def(
          "file", [](const OpenCheckpoint& c) { return to_bytes(c.owner->origin().file); },
          "As it was given to open(); b\"descriptor 5\" if that was a descriptor, b\"memory\".")
      .def("origin", origin_of,
           nb::sig("def origin(self) -> tuple[list[bytes], dict[str, typing.Any]]"),
           "The paths, absolute as of the open, none if that was by descriptor or in memory; and "
           "the "
           "options.")
      .def("__reduce__", reduce, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__len__", [](const OpenCheckpoint& c) { return c.checkpoint().tensors().size(); })
      .def("contains", contains, nb::sig("def contains(self, name: str, /) -> bool"),
           "True if find() has a tensor of this name.")
      .def("find", find, nb::sig("def find(self, name: str, /) -> Tensor | None"),
           "The tensor of this name; None if there is none, or more than one.")
      .def(
          "get",
          [](const OpenCheckpoint& self, const nb::str& name) {
            return tensor_of(self, value_or_raise(self.checkpoint().get(to_utf8(name))));
          },
          nb::sig("def get(self, name: str, /) -> Tensor"),
          "The same with an error that says why not.")
      .def("get_path", get_path,
           nb::sig("def get_path(self, path: tuple[str | int, ...], /) -> Tensor"))
      .def("at", at, nb::sig("def at(self, index: int, /) -> Tensor"))
      .def(
          "name",
          [](const OpenCheckpoint& self, std::size_t index) {
            check_index(self, index);
            return to_str(tensor_name(self.checkpoint(), index));
          },
          nb::sig("def name(self, index: int, /) -> str"))
      .def("shape_of_piece", shape_of_piece,
           nb::sig("def shape_of_piece(self, index: int, /) -> tuple[int, ...]"),
           "Of a piece of a chunked tensor, without looking it up.")
      .def("names", names_of, nb::sig("def names(self) -> list[str]"),
           "Of all tensors, in the order of the file.")
      .def("keys", keys_of, nb::sig("def keys(self) -> list[str]"),
           "As names(), with the whole in place of its pieces.")
      .def("key_count", key_count, "How many keys() there are.")
      .def("path", path_of, nb::sig("def path(self, index: int, /) -> tuple[str | int, ...]"))
      .def("info", info, nb::sig("def info(self) -> dict[str, typing.Any]"))
      .def("stats", stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def("evaluate", evaluate_from, nb::arg("machine"), nb::arg("path") = nb::tuple(),
           nb::sig("def evaluate(self, machine: typing.Any, path: tuple[str | int, ...] = (), /) "
                   "-> typing.Any"),
           "What this path leads to, as `machine` understands it; see python/src/evaluator.hpp.")
      .def(
          "left_out_values", left_out_values,
          nb::sig("def left_out_values(self) -> tuple[str, ...]"),
          "Names of what the values of a folder in pieces cannot have; empty before they are asked "
          "for.")
      .def("look", look,
           nb::sig("def look(self, name: str, /) -> tuple[tuple[str | int, ...], str] | None"),
           "Where these keys, joined by dots, lead to, and the type of what is there.")
      .def("composed", composed_fields,
           nb::sig("def composed(self) -> list[dict[str, typing.Any]]"),
           "Tensors that are more than one dense block of elements.")
      .def("files", files_of,
           nb::sig("def files(self) -> list[tuple[bytes, tuple[int, int, int, int, int]]]"),
           "The files that it was opened from, and their generations.")
      .def("storage_place", storage_place,
           nb::sig("def storage_place(self, index: int, /) -> tuple[int, int]"),
           "Offset in the mapping and bytes of a storage.")
      .def("find_storage", find_storage,
           nb::sig("def find_storage(self, key: str, /) -> tuple[int, int] | None"),
           "Offset in the mapping and bytes of the record of this storage.")
      .def(
          "mapping", [](const OpenCheckpoint& self) { return mapped_bytes(self.owner); },
          "The file as it is mapped.")
      .def(
          "lend",
          [](const OpenCheckpoint& self, std::uint64_t storage_bytes) {
            return lent_bytes(self.owner, storage_bytes);
          },
          nb::sig("def lend(self, storage_bytes: int, /) -> MappedBytes"),
          "The file as memory for torch tensors of a storage of so many bytes: copy on write, or "
          "the mapping as it is, which then must only be read.")
      .def(
          "match",
          [](const OpenCheckpoint& self, const nb::str& pattern) {
            return match_tensors(self.checkpoint(), to_utf8(pattern));
          },
          nb::sig("def match(self, pattern: str, /) -> list[int]"),
          "Indices of the tensors whose names match.")
      .def(
          "generation",
          [](const OpenCheckpoint& self) {
            return generation_fields(self.checkpoint().source(0).generation);
          },
          nb::sig("def generation(self) -> tuple[int, int, int, int, int]"))
      .def("state", [](const OpenCheckpoint& self) { return to_string(self.checkpoint().state()); })
      .def("is_current", [](const OpenCheckpoint& self) { return self.checkpoint().is_current(); })
      .def("reopen", reopen)
      .def("copy_to", copy_to,
           nb::sig("def copy_to(self, tensor: Tensor, buffer: typing.Any, /) -> None"))
      .def("check_unchanged", check_unchanged_since,
           nb::sig("def check_unchanged(self, tensor: Tensor, /) -> None"))
      .def("gather", gather,
           nb::sig("def gather(self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], "
                   "buffer: typing.Any, /) -> None"))
      .def("has_chunks", has_chunks, "Whether composed() has chunked tensors.")
      .def("verify_headers", verify_headers)
      .def("verify_crc", verify_crc, nb::arg("progress").none(),
           nb::sig("def verify_crc(self, progress: typing.Callable[[int, int], typing.Any] | "
                   "None, /) -> tuple[int, int, int]"),
           "Storages checked, storages without a sum, bytes read.");
  bind_pages(checkpoint);
  bind_rows(module, checkpoint);
  bind_experts(module, checkpoint);
  module.def("open", open, nb::arg("path"), nb::arg("options"), nb::arg("like_torch") = false,
             nb::arg("progress") = nb::none(),
             nb::sig("def open(path: bytes, options: dict[str, typing.Any], like_torch: bool = "
                     "False, progress: typing.Callable[[int, int], typing.Any] | None = None, /) "
                     "-> Checkpoint"),
             "like_torch: private and writable, without reserving swap, where nothing says "
             "otherwise.");
  module.def("open_files", open_files, nb::arg("paths"), nb::arg("options"),
             nb::arg("like_torch") = false, nb::arg("progress") = nb::none(),
             nb::sig("def open_files(paths: list[bytes], options: dict[str, typing.Any], "
                     "like_torch: bool = False, progress: "
                     "typing.Callable[[int, int], typing.Any] | None = None, /) -> Checkpoint"));
  module.def("open_descriptor", open_descriptor, nb::arg("descriptor"), nb::arg("options"),
             nb::arg("like_torch") = false, nb::arg("progress") = nb::none(),
             nb::sig("def open_descriptor(descriptor: int, options: dict[str, typing.Any], "
                     "like_torch: bool = False, progress: "
                     "typing.Callable[[int, int], typing.Any] | None = None, /) -> "
                     "Checkpoint"));
  module.def("open_memory", open_memory, nb::arg("buffer"), nb::arg("trusted"), nb::arg("options"),
             nb::arg("progress") = nb::none(),
             nb::sig("def open_memory(buffer: typing.Any, trusted: bool, options: dict[str, "
                     "typing.Any], progress: "
                     "typing.Callable[[int, int], typing.Any] | None = None, /) -> Checkpoint"),
             "Keeps the buffer exported until the last tensor is gone.");
}

}  // namespace weightmap::python
