// From the value tree to Python objects, with a "machine" that decides what globals, calls and
// persistent ids become.
//
// The machine is a Python object with these methods; weightmap/_values.py has the one that calls
// nothing, weightmap/_torch/weights_only.py the one that does what torch's weights-only unpickler
// does.
//
//   find_global(module, name)     what a global stands for
//   call(callable, arguments)     the object that a REDUCE makes
//   create(type, arguments)       the object that a NEWOBJ makes
//   extend(object, elements)      APPENDS to something that is not a list
//   update(object, pairs)         SETITEMS on something that is not a dict
//   build(object, state)          BUILD
//   persistent(id)                a storage
//   finish                        None, or a function of the object that a REDUCE or NEWOBJ made,
//                                 now that it has its elements, items and state, that answers what
//                                 it becomes
//   tensor                        None, or a function of a Tensor that answers what it becomes
//   text                          a function of a str that answers what it becomes, once for each
//                                 text of the pickle; need not be there
//   direct                        None, or what direct_tensors.hpp wants to know to make tensors
//
// Nodes that the pickle shares become shared objects. Nothing recurses, however deep a file nests.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "python/src/holder.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {

// The object that a value of the checkpoint's tree stands for. Passes on what the machine
// raises; raises `unsupported` for a tuple or an object that contains itself and for an argument
// that is changed after its call, `limit_exceeded` for keys that would take too long to hash.
nanobind::object evaluate(const Owner& owner, nanobind::handle machine, const Value& from);

// Precondition: the value holds no other values (none, boolean, numbers, string, bytes).
nanobind::object to_python(const Value& value);

// A tuple of str and int.
nanobind::tuple to_python(std::span<const PathPart> path);

}  // namespace weightmap::python
