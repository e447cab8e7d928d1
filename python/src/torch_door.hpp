// Memory as a torch tensor by DLPack: torch imports a capsule in a tenth of the time in which its
// own functions make a tensor of given memory.
//
// The tensor has a storage of its own, from its first element to its last one, and a version of 0
// where torch's functions leave 1; nothing else tells the two apart.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weightmap/tensor_view.hpp"

namespace weightmap::python {

// The memory and the shape of a tensor to be made.
struct TorchMemory {
  std::shared_ptr<const void> owner;  // of which the tensor keeps a share
  std::byte* data;                    // the first element, in this machine's byte order
  DType dtype;
  std::span<const std::int64_t> shape;    // at least one element
  std::span<const std::int64_t> strides;  // in elements
};

// Elements from the first to the last one that the strides reach; 0 if there are none, if a stride
// is negative, or if the number does not fit.
std::uint64_t reach_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

// Returns true if torch has a door, and no mode or transform is active that torch would ask before
// it makes a tensor. Imports torch; raises if there is none.
bool torch_door_is_open();

// The tensor. Invalid if it has to be made in another way: torch's door does not know the dtype, or
// does not answer a plain tensor of it, or the address is not aligned. Precondition: the door is
// open.
nanobind::object through_torch_door(const TorchMemory& memory);

void bind_torch_door(nanobind::module_& module);

}  // namespace weightmap::python
