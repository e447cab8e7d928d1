// Units that are in memory within a budget: weightmap/experts.py is the interface.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/dlpack.hpp"
#include "python/src/errors.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/torch_door.hpp"
#include "runtime/base/element_format.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

using PartFields = std::tuple<std::string, std::optional<std::int64_t>, bool>;
using UnitFields = std::tuple<std::string, std::vector<PartFields>>;

// What elements a part has. Blocks of a blocked dtype are bytes, as Tensor.torch() has them.
struct PartForm {
  DType dtype;
  std::vector<std::int64_t> shape;
};

// Keeps the checkpoint open.
struct OpenSet {
  Owner owner;
  ResidentSet set;
  std::vector<std::vector<PartForm>> forms;  // of each part of each unit
};

// What arrays and tensors over the memory of a unit keep, of which the last one ends the lease.
struct HeldLease {
  std::shared_ptr<const OpenSet> units;
  Lease lease;
};

// The lease as Python has it; nullptr once it was ended.
struct OpenLease {
  std::shared_ptr<const HeldLease> held;
};

// The set as Python has it.
struct SharedSet {
  std::shared_ptr<const OpenSet> open;
};

std::vector<UnitFields> fields_of(const std::vector<Unit>& units) {
  std::vector<UnitFields> fields;
  fields.reserve(units.size());
  for (const Unit& unit : units) {
    std::vector<PartFields> parts;
    for (const UnitPart& part : unit.parts)
      parts.emplace_back(part.tensor, part.index, part.is_joined);
    fields.emplace_back(unit.name, std::move(parts));
  }
  return fields;
}

std::vector<Unit> units_of(std::vector<UnitFields> fields) {
  std::vector<Unit> units;
  units.reserve(fields.size());
  for (auto& [name, parts] : fields) {
    Unit& unit = units.emplace_back(Unit{std::move(name), {}});
    for (auto& [tensor, index, is_joined] : parts)
      unit.parts.push_back({std::move(tensor), index, is_joined});
  }
  return units;
}

PartForm form_of(const Checkpoint& checkpoint, const UnitPart& part) {
  WholeTensor whole = value_or_raise(whole_tensor(checkpoint, part.tensor));
  const TensorView& view = checkpoint.tensors()[whole.first_piece].view;
  if (view.is_conjugate() || view.is_negative())
    raise(ErrorCode::unsupported, "tensor \"" + part.tensor + "\"" +
                                      " was saved as a lazy conjugate or negative: its stored "
                                      "values are not its values");
  std::vector<std::int64_t>& shape = whole.sizes;
  if (is_blocked(whole.dtype) && !shape.empty()) {
    const auto elements = static_cast<std::uint64_t>(shape.back());
    shape.back() = static_cast<std::int64_t>(bytes_of(whole.dtype, elements));
    whole.dtype = DType::uint8;
  }
  if (part.index) shape.erase(shape.begin());
  return {whole.dtype, std::move(shape)};
}

SharedSet make_set(const OpenCheckpoint& self, std::vector<UnitFields> fields,
                   std::uint64_t budget_bytes, std::string share, std::uint64_t wait_ms,
                   const std::string& policy) {
  const Checkpoint& checkpoint = self.with_bytes();
  ResidentOptions options{budget_bytes, std::move(share), wait_ms, eviction_policy(policy)};
  if (!options.policy)
    raise(ErrorCode::invalid_argument,
          "there is no policy \"" + policy + "\", expected lru, lfu, sieve or s3fifo");
  std::vector<Unit> units = units_of(std::move(fields));
  ResidentSet set = value_or_raise(
      without_gil([&] { return ResidentSet::of(checkpoint, std::move(units), options); }));
  std::vector<std::vector<PartForm>> forms;
  for (const Unit& unit : set.units())
    for (const UnitPart& part : forms.emplace_back(), unit.parts)
      forms.back().push_back(form_of(checkpoint, part));
  return {std::make_shared<const OpenSet>(OpenSet{self.owner, std::move(set), std::move(forms)})};
}

nb::list acquire_units(const SharedSet& self, const std::vector<std::size_t>& units) {
  std::vector<Lease> leases =
      value_or_raise(without_gil([&] { return self.open->set.acquire(units); }));
  nb::list made;
  for (Lease& each : leases)
    made.append(
        OpenLease{std::make_shared<const HeldLease>(HeldLease{self.open, std::move(each)})});
  return made;
}

nb::dict stats_of_set(const SharedSet& self) {
  const ResidentStats stats = without_gil([&] { return self.open->set.stats(); });
  nb::dict made;
  made["budget_bytes"] = stats.budget_bytes;
  made["slot_bytes"] = stats.slot_bytes;
  made["resident_units"] = stats.resident_units;
  made["mapped_units"] = stats.mapped_units;
  made["leased_units"] = stats.leased_units;
  made["hits"] = stats.hits;
  made["misses"] = stats.misses;
  made["missed_bytes"] = stats.missed_bytes;
  made["read_bytes"] = stats.read_bytes;
  made["prefetched_units"] = stats.prefetched_units;
  made["evicted_units"] = stats.evicted_units;
  made["waited_seconds"] = seconds(std::chrono::nanoseconds(stats.waited_ns));
  made["processes"] = stats.processes;
  made["why_not_direct"] = stats.why_not_direct;
  return made;
}

nb::list history_of_set(const SharedSet& self) {
  nb::list made;
  for (const UnitHistory& each : without_gil([&] { return self.open->set.history(); }))
    made.append(nb::make_tuple(each.last_used, each.entered, each.uses));
  return made;
}

// --- parts

struct LentPart {
  std::shared_ptr<const HeldLease> owner;
  std::span<const std::byte> bytes;
  PartForm form;
};

const HeldLease& held_by(const OpenLease& lease) {
  if (!lease.held) raise(ErrorCode::invalid_argument, "the lease has ended");
  return *lease.held;
}

[[noreturn]] void refuse_parts(const Unit& unit, const std::string& why) {
  raise(ErrorCode::invalid_argument, "unit \"" + unit.name + "\": " + why);
}

// The form of the first part with what the next one adds to its first dimension.
void join_form(const Unit& unit, std::size_t part, const PartForm& next, PartForm& whole) {
  const std::string name = "part " + std::to_string(part);
  if (!unit.parts[part].is_joined) refuse_parts(unit, name + " is not joined to the one before it");
  const bool fits = whole.dtype == next.dtype && !whole.shape.empty() && !next.shape.empty() &&
                    std::equal(whole.shape.begin() + 1, whole.shape.end(), next.shape.begin() + 1,
                               next.shape.end());
  if (!fits)
    refuse_parts(unit, name + " differs from the first one in more than its first dimension");
  whole.shape.front() += next.shape.front();
}

LentPart lent_part(const OpenLease& self, std::size_t part, std::size_t count) {
  const HeldLease& held = held_by(self);
  const Unit& unit = held.units->set.units()[held.lease.unit()];
  if (count == 0 || part >= unit.parts.size() || count > unit.parts.size() - part)
    refuse_parts(unit, "there are no " + std::to_string(count) + " parts from " +
                           std::to_string(part) + " on, it has " +
                           std::to_string(unit.parts.size()));
  const std::vector<PartForm>& forms = held.units->forms[held.lease.unit()];
  PartForm form = forms[part];
  std::size_t bytes = held.lease.part(part).size();
  for (std::size_t next = part + 1; next < part + count; ++next) {
    join_form(unit, next, forms[next], form);
    bytes += held.lease.part(next).size();
  }
  return {self.held, {held.lease.part(part).data(), bytes}, std::move(form)};
}

// Row-major, in elements times `unit`.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape, std::int64_t unit) {
  std::vector<std::int64_t> strides(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0; unit *= std::max<std::int64_t>(shape[dim], 1))
    strides[dim] = unit;
  return strides;
}

nb::object part_to_numpy(const OpenLease& self, std::size_t part, std::size_t count) {
  const LentPart lent = lent_part(self, part, count);
  const ElementFormat& format = element_format(lent.form.dtype);
  if (format.numpy_name.empty())
    raise(ErrorCode::unsupported, "numpy has no type for " + std::string(format.name));
  const auto size = static_cast<std::int64_t>(element_size(lent.form.dtype));
  return nb::module_::import_("weightmap._numpy")
      .attr("view")(format.numpy_name.data(), format.numpy_kind == 0, false,
                    int_tuple(lent.form.shape), MappedBytes{lent.owner, lent.bytes, false}, 0,
                    int_tuple(dense_strides(lent.form.shape, size)));
}

nb::object part_to_torch(const OpenLease& self, std::size_t part, std::size_t count) {
  const LentPart lent = lent_part(self, part, count);
  const std::vector<std::int64_t> strides = dense_strides(lent.form.shape, 1);
  // torch has no word for memory that is only read, and warns of it.
  auto* const data = const_cast<std::byte*>(lent.bytes.data());
  if (!lent.bytes.empty() && torch_door_is_open())
    if (nb::object made =
            through_torch_door({lent.owner, data, lent.form.dtype, lent.form.shape, strides});
        made.is_valid())
      return made;
  return nb::module_::import_("weightmap._torch.tensors")
      .attr("view")(MappedBytes{lent.owner, lent.bytes, true}, 0, lent.bytes.size(),
                    to_string(lent.form.dtype).data(), 0, int_tuple(lent.form.shape),
                    int_tuple(strides), false, false, false);
}

nb::object part_to_dlpack(const OpenLease& self, std::size_t part, std::size_t count) {
  const LentPart lent = lent_part(self, part, count);
  const std::vector<std::size_t> shape(lent.form.shape.begin(), lent.form.shape.end());
  const nb::object owner = nb::cast(MappedBytes{lent.owner, lent.bytes, false});
  return nb::cast(nb::ndarray<nb::array_api, nb::ro>(lent.bytes.data(), shape.size(), shape.data(),
                                                     owner, nullptr, dlpack_type(lent.form.dtype)),
                  nb::rv_policy::reference);
}

void bind_lease(nb::module_& module) {
  nb::class_<OpenLease>(module, "Lease")
      .def("unit", [](const OpenLease& self) { return held_by(self).lease.unit(); })
      .def("is_mapped", [](const OpenLease& self) { return held_by(self).lease.is_mapped(); })
      .def(
          "end", [](OpenLease& self) { self.held = nullptr; }, nb::lock_self())
      .def("numpy", part_to_numpy, nb::lock_self(),
           nb::sig("def numpy(self, part: int, count: int, /) -> typing.Any"))
      .def("torch", part_to_torch, nb::lock_self(),
           nb::sig("def torch(self, part: int, count: int, /) -> typing.Any"))
      .def("dlpack", part_to_dlpack, nb::lock_self(),
           nb::sig("def dlpack(self, part: int, count: int, /) -> typing.Any"));
}

}  // namespace

void bind_experts(nb::module_& module, nb::class_<OpenCheckpoint>& checkpoint) {
  bind_lease(module);
  nb::class_<SharedSet>(module, "ResidentSet")
      .def("unit_bytes",
           [](const SharedSet& self) {
             std::vector<std::uint64_t> bytes;
             for (std::size_t unit = 0; unit < self.open->set.units().size(); ++unit)
               bytes.push_back(self.open->set.unit_bytes(unit));
             return bytes;
           })
      .def("acquire", acquire_units,
           nb::sig("def acquire(self, units: list[int], /) -> list[Lease]"))
      .def(
          "prefetch",
          [](const SharedSet& self, const std::vector<std::size_t>& units) {
            without_gil([&] { self.open->set.prefetch(units); });
          },
          nb::sig("def prefetch(self, units: list[int], /) -> None"))
      .def("stats", stats_of_set, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def("cached_bytes",
           [](const SharedSet& self) {
             return value_or_raise(without_gil([&] { return self.open->set.cached_bytes(); }));
           })
      .def("history", history_of_set, nb::sig("def history(self) -> list[tuple[int, int, int]]"))
      .def(
          "save_profile",
          [](const SharedSet& self, const nb::bytes& path) {
            value_or_raise(without_gil(
                [&, file = text_of(path)] { return self.open->set.save_profile(file); }));
          },
          nb::sig("def save_profile(self, path: bytes, /) -> None"))
      .def(
          "load_profile",
          [](const SharedSet& self, const nb::bytes& path) {
            value_or_raise(without_gil(
                [&, file = text_of(path)] { return self.open->set.load_profile(file); }));
          },
          nb::sig("def load_profile(self, path: bytes, /) -> None"));
  checkpoint.def(
      "expert_units",
      [](const OpenCheckpoint& self, const std::string& pattern) {
        return fields_of(value_or_raise(expert_units(self.checkpoint(), pattern)));
      },
      nb::sig("def expert_units(self, pattern: str, /) -> list[tuple[str, list[tuple[str, int | "
              "None, bool]]]]"));
  checkpoint.def(
      "resident_set", make_set,
      nb::sig("def resident_set(self, units: list[tuple[str, list[tuple[str, int | None, bool]]]], "
              "budget_bytes: int, share: str, wait_ms: int, policy: str, /) -> ResidentSet"));
}

}  // namespace weightmap::python
