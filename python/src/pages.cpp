// What of a checkpoint's files is in memory, and what brings it there.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "runtime/services/inspect/surroundings.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// A warm-up has its own threads; this one asks how far they are.
Result<WarmReport> warm_up(const Checkpoint& checkpoint, const WarmOptions& options,
                           const Progress& go_on) {
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  if (!warmer) return tl::unexpected<Error>(warmer.error());
  while (!warmer->wait_for(std::chrono::milliseconds(50))) {
    const WarmProgress progress = warmer->progress();
    if (!go_on(progress.bytes_done, progress.bytes_all)) warmer->cancel();
  }
  const WarmProgress progress = warmer->progress();
  go_on(progress.bytes_done, progress.bytes_all);
  return warmer->wait();
}

nb::dict warm(const OpenCheckpoint& self, std::vector<std::size_t> tensors,
              const std::vector<Tensor>& parts, unsigned threads, std::uint64_t budget_bytes,
              bool crc, bool one_reader, nb::handle told) {
  const Checkpoint& checkpoint = self.with_bytes();
  WarmOptions options;
  options.tensors = std::move(tensors);
  for (const Tensor& part : parts)
    options.slices.push_back(value_or_raise(TensorSlice::of(part.view())));
  options.threads = threads;
  options.budget_bytes = budget_bytes;
  options.verify_crc = crc;
  options.one_reader = one_reader;
  LongCall call(told);
  const Result<WarmReport> warmed =
      call.run([&] { return warm_up(checkpoint, options, call.progress()); });
  const WarmReport report = value_or_raise(warmed);
  if (!report.crc.faults.empty()) raise(report.crc.faults.front());
  nb::dict fields;
  fields["bytes"] = report.bytes_done;
  fields["bytes_left_out"] = report.bytes_left_out;
  fields["budget_bytes"] = report.budget_bytes;
  fields["budget_reason"] = report.budget_reason;
  fields["method"] = report.method;
  fields["method_reason"] = report.method_reason;
  fields["storages_checked"] = report.crc.storages_checked;
  fields["seconds"] = seconds(report.time);
  fields["was_reader"] = report.was_reader;
  fields["takeovers"] = report.takeovers;
  fields["bytes_read"] = report.bytes_read;
  fields["bytes_waited_for"] = report.bytes_waited_for;
  fields["why_alone"] = report.why_alone;
  return fields;
}

void demand(const OpenCheckpoint& self, const Tensor& tensor) {
  const Checkpoint& checkpoint = self.with_bytes();
  value_or_raise(without_gil([&] { return checkpoint.demand(tensor.view()); }));
}

void save_order(const OpenCheckpoint& self, const nb::bytes& path) {
  const std::filesystem::path file = text_of(path);
  value_or_raise(without_gil(
      [&] { return save_tensor_order(self.checkpoint(), demand_order(self.checkpoint()), file); }));
}

std::vector<std::size_t> load_order(const OpenCheckpoint& self, const nb::bytes& path) {
  const std::filesystem::path file = text_of(path);
  return value_or_raise(without_gil([&] { return load_tensor_order(self.checkpoint(), file); }))
      .tensors;
}

nb::tuple range_fields(const RangeResidency& range) {
  return nb::make_tuple(range.file_offset, range.extent_bytes, range.cached_bytes,
                        range.resident_bytes, range.anonymous_bytes, range.huge_mapped_bytes);
}

nb::dict residency(const OpenCheckpoint& self) {
  const ResidencyReport report =
      value_or_raise(without_gil([&] { return weightmap::residency(self.checkpoint()); }));
  nb::list tensors;
  for (const TensorResidency& tensor : report.tensors) tensors.append(range_fields(tensor));
  nb::list storages;
  for (const StorageResidency& storage : report.storages)
    storages.append(nb::make_tuple(to_str(storage.key), storage.source, range_fields(storage)));
  nb::dict fields;
  fields["file_bytes"] = report.file.file_bytes;
  fields["cached_bytes"] = report.file.cached_bytes;
  fields["resident_bytes"] = report.file.resident_bytes;
  fields["anonymous_bytes"] = report.file.anonymous_bytes;
  fields["huge_mapped_bytes"] = report.file.huge_mapped_bytes;
  fields["pss_bytes"] = report.file.pss_bytes;
  fields["pss_anonymous_bytes"] = report.file.pss_anonymous_bytes;
  fields["minor_faults_since_open"] = report.file.minor_faults_since_open;
  fields["major_faults_since_open"] = report.file.major_faults_since_open;
  fields["is_fragmented"] = report.file.is_fragmented;
  fields["tensors"] = tensors;
  fields["storages"] = storages;
  return fields;
}

std::uint64_t anonymous_bytes(const OpenCheckpoint& self) {
  return value_or_raise(without_gil([&] { return weightmap::anonymous_bytes(self.checkpoint()); }));
}

bool lies_on_remote_files(const OpenCheckpoint& self) {
  const nb::gil_scoped_release release;
  const Surroundings around = surroundings(self.checkpoint());
  return std::any_of(around.files.begin(), around.files.end(), [](const FileSurroundings& file) {
    return weightmap::is_remote(file.file_system);
  });
}

}  // namespace

void bind_pages(nb::class_<OpenCheckpoint>& checkpoint) {
  checkpoint
      .def("warm", warm, nb::arg("tensors"), nb::arg("parts"), nb::arg("threads"),
           nb::arg("budget_bytes"), nb::arg("crc"), nb::arg("one_reader"),
           nb::arg("progress").none(),
           nb::sig("def warm(self, tensors: list[int], parts: list[Tensor], threads: int, "
                   "budget_bytes: int, crc: bool, one_reader: bool, "
                   "progress: typing.Callable[[int, int], typing.Any] | None, "
                   "/) -> dict[str, typing.Any]"))
      .def("demand", demand, nb::sig("def demand(self, tensor: Tensor, /) -> None"))
      .def("demand_order",
           [](const OpenCheckpoint& self) { return demand_order(self.checkpoint()); })
      .def("save_order", save_order, nb::sig("def save_order(self, path: bytes, /) -> None"),
           "Writes demand_order() to an order file.")
      .def("load_order", load_order, nb::sig("def load_order(self, path: bytes, /) -> list[int]"))
      .def("is_remote", lies_on_remote_files,
           "Whether one of its files comes from a server or a daemon.")
      .def("anonymous_bytes", anonymous_bytes, nb::sig("def anonymous_bytes(self) -> int"),
           "What this process has copied of the mapping by writing to it.")
      .def("residency", residency, nb::sig("def residency(self) -> dict[str, typing.Any]"));
}

}  // namespace weightmap::python
