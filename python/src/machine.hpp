// The Python object that decides what globals, calls and persistent ids become; evaluator.hpp lists
// its methods.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "python/src/bindings.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {

// Calls the methods of the machine, and makes the values that Python itself can make.
class Machine {
 public:
  explicit Machine(nanobind::handle machine)
      : create(machine.attr("create")),
        extend(machine.attr("extend")),
        update(machine.attr("update")),
        build(machine.attr("build")),
        persistent(machine.attr("persistent")),
        find_global_(machine.attr("find_global")),
        call_(machine.attr("call")),
        tensor_(machine.attr("tensor")),
        finish_(machine.attr("finish")),
        text_(nanobind::getattr(machine, "text", nanobind::none())),
        ordered_dict_(nanobind::module_::import_("collections").attr("OrderedDict")),
        function_type_(nanobind::module_::import_("types").attr("FunctionType")) {}

  nanobind::object find_global(const Value& value) const {
    return find_global_(to_str(value.module()), to_str(value.name()));
  }

  // `is_found`: find_global() answered the callable, so it is one that the machine allows; then a
  // plain function need not be asked about again.
  nanobind::object call(const nanobind::object& callable, const nanobind::object& arguments,
                        bool is_found) const {
    const bool is_plain = is_found && (callable.is(ordered_dict_) || is_function(callable));
    if (is_plain && PyTuple_CheckExact(arguments.ptr()))
      return checked(PyObject_Call(callable.ptr(), arguments.ptr(), nullptr));
    return call_(callable, arguments);
  }
  const nanobind::object create, extend, update, build, persistent;

  bool wants_tensors() const { return !tensor_.is_none(); }
  nanobind::object tensor(Tensor tensor) const {
    return tensor_(nanobind::cast(std::move(tensor)));
  }
  bool wants_finish() const { return !finish_.is_none(); }
  nanobind::object finish(const nanobind::object& object) const { return finish_(object); }
  bool wants_texts() const { return !text_.is_none(); }
  nanobind::object text(const nanobind::object& text) const { return text_(text); }
  bool is_function(const nanobind::object& callable) const {
    return nanobind::handle(callable.type()).is(function_type_);
  }
  bool is_ordered_dict(const nanobind::object& object) const {
    return nanobind::handle(object.type()).is(ordered_dict_);
  }

 private:
  nanobind::object find_global_, call_, tensor_, finish_, text_;
  nanobind::object ordered_dict_, function_type_;
};

}  // namespace weightmap::python
