#include "python/src/composed.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "python/src/text.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap::python {

namespace nb = nanobind;

namespace {

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

}  // namespace

nb::list composed_fields(const Checkpoint& checkpoint) {
  nb::list all;
  for (const ComposedTensor& each : composed_tensors(checkpoint)) {
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

}  // namespace weightmap::python
