// Rows of tables, by their numbers.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/exported_memory.hpp"
#include "python/src/tensor.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Keeps the checkpoint open.
struct Rows {
  Owner owner;
  RowReader reader;
};

Rows rows_of(const OpenCheckpoint& self, const std::vector<std::string>& names,
             std::uint64_t budget_bytes) {
  const Checkpoint& checkpoint = self.with_bytes();
  const std::vector<std::string_view> tables(names.begin(), names.end());
  return {self.owner, value_or_raise(RowReader::of(checkpoint, tables, {budget_bytes}))};
}

// The ids are int64, of this machine's byte order.
void gather_rows(const Rows& self, nb::handle ids, const nb::list& out) {
  const ExportedMemory numbers = export_memory(ids, true);
  std::vector<std::unique_ptr<WritableBuffer>> buffers;
  std::vector<std::span<std::byte>> memory;
  for (const nb::handle each : out) {
    buffers.push_back(std::make_unique<WritableBuffer>(each));
    memory.push_back(buffers.back()->bytes());
  }
  const std::span rows(reinterpret_cast<const std::int64_t*>(numbers.bytes.data()),
                       numbers.bytes.size() / sizeof(std::int64_t));
  value_or_raise(without_gil([&] { return self.reader.gather(rows, memory); }));
}

void advise_tensor(const OpenCheckpoint& self, const Tensor& tensor, bool random) {
  value_or_raise(weightmap::advise(self.with_bytes(), tensor.view(),
                                   random ? Access::random : Access::normal));
}

}  // namespace

void bind_rows(nb::module_& module, nb::class_<OpenCheckpoint>& checkpoint) {
  nb::class_<Rows>(module, "Rows")
      .def("count", [](const Rows& self) { return self.reader.row_count(); })
      .def(
          "row_bytes",
          [](const Rows& self, std::size_t table) { return self.reader.row_bytes(table); },
          nb::sig("def row_bytes(self, table: int, /) -> int"))
      .def("gather", gather_rows,
           nb::sig("def gather(self, ids: typing.Any, out: list[typing.Any], /) -> None"),
           "ids: memory of int64. out: writable memory for each table.");
  checkpoint.def("advise", advise_tensor,
                 nb::sig("def advise(self, tensor: Tensor, random: bool, /) -> None"));
  checkpoint.def("rows", rows_of,
                 nb::sig("def rows(self, names: list[str], budget_bytes: int, /) -> Rows"));
}

}  // namespace weightmap::python
