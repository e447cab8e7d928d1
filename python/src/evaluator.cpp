#include "python/src/evaluator.hpp"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/src/errors.hpp"
#include "python/src/machine.hpp"
#include "python/src/python_value.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

using Kind = Value::Kind;

void check(int status) {
  if (status != 0) throw nb::python_error();
}

// A TypeError here says that a key or an element cannot be hashed; no pickler writes such.
[[noreturn]] void refuse_key(std::string_view container) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  PyErr_Clear();
  raise(ErrorCode::corrupt, "the pickle has a " + std::string(container) +
                                " with a key that cannot be one, such as a list");
}

std::size_t size_of(const nb::object& list) {
  return static_cast<std::size_t>(PyList_Size(list.ptr()));
}

// A value whose parts are being made. `parts` collects them; what they become depends on the kind.
struct Frame {
  enum Step { callable, arguments, elements, items, state, end };

  explicit Frame(const Value& of)
      : value(of), step(of.kind() == Kind::object ? callable : elements) {
    switch (of.kind()) {
      case Kind::tuple:
      case Kind::list:
      case Kind::set:
      case Kind::frozen_set:
        at = of.elements().begin();
        break;
      case Kind::dict:
        item = of.items().begin();
        break;
      default:
        break;
    }
  }

  Value value;
  Step step;
  Value::Iterator at{};
  Value::ItemIterator item{};
  bool has_key = false;  // of the item, whose value comes next
  nb::object function;   // object: the callable
  nb::object made;       // the container or object itself, once there is one
  nb::object parts = nb::list();
};

class Evaluator {
 public:
  Evaluator(const Owner& owner, nb::handle machine) : owner_(owner), machine_(machine) {}

  nb::object run() {
    nb::object done = enter(owner_->checkpoint().root());
    while (!frames_.empty()) {
      if (done.is_valid()) {
        accept(frames_.back(), std::move(done));
        done.reset();
      }
      Frame& frame = frames_.back();
      Value child{nullptr, {}};
      if (next(frame, child)) {
        done = enter(child);
      } else {
        done = finish(frame);
        frames_.pop_back();
      }
    }
    return done;
  }

 private:
  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };

  // The object if it can be had at once; else pushes a frame and answers an invalid object.
  nb::object enter(const Value& value) {
    switch (value.kind()) {
      case Kind::tuple:
      case Kind::list:
      case Kind::dict:
      case Kind::set:
      case Kind::frozen_set:
      case Kind::global:
      case Kind::object:
      case Kind::persistent_id:
        break;
      default:
        return to_python(value);
    }
    if (value.is_private_part()) return push(value);
    const auto [known, is_new] = made_.try_emplace(value);
    if (!is_new) {
      if (known->second.is_valid()) return known->second;
      raise(ErrorCode::unsupported,
            "the pickle has a " + std::string(to_string(value.kind())) + " that contains itself");
    }
    if (value.kind() == Kind::global) return known->second = machine_.find_global(value);
    if (machine_.wants_tensors() && value.kind() == Kind::object)
      if (const auto tensor = owner_->checkpoint().tensor(value))
        return known->second = machine_.tensor({owner_, *tensor});
    if (value.kind() == Kind::list) known->second = nb::list();
    if (value.kind() == Kind::dict) known->second = nb::dict();
    const nb::object container = known->second;
    push(value);
    frames_.back().made = container;
    return {};
  }

  nb::object push(const Value& value) {
    frames_.emplace_back(value);
    return {};
  }

  // The next part to be made; false if there is none. Steps of an object that have no parts are
  // passed over.
  bool next(Frame& frame, Value& child) {
    switch (frame.value.kind()) {
      case Kind::persistent_id:
        child = frame.value.persistent_id();
        return size_of(frame.parts) == 0;
      case Kind::dict:
        return next_item(frame, child);
      case Kind::object:
        return next_of_object(frame, child);
      default:
        return next_element(frame, child);
    }
  }

  bool next_element(Frame& frame, Value& child) {
    if (frame.at == frame.value.elements().end()) return false;
    child = *frame.at;
    ++frame.at;
    return true;
  }

  bool next_item(Frame& frame, Value& child) {
    if (!frame.has_key && frame.item == frame.value.items().end()) return false;
    child = frame.has_key ? (*frame.item).second : (*frame.item).first;
    if (frame.has_key) ++frame.item;
    frame.has_key = !frame.has_key;
    return true;
  }

  bool next_of_object(Frame& frame, Value& child) {
    switch (frame.step) {
      case Frame::callable:
        child = frame.value.callable();
        return true;
      case Frame::arguments:
        child = frame.value.arguments();
        return true;
      case Frame::elements:
        if (next_element(frame, child)) return true;
        if (size_of(frame.parts) != 0)
          machine_.extend(frame.made, std::exchange(frame.parts, nb::list()));
        frame.step = Frame::items;
        frame.item = frame.value.items().begin();
        [[fallthrough]];
      case Frame::items:
        if (next_item(frame, child)) return true;
        if (size_of(frame.parts) != 0)
          machine_.update(frame.made, std::exchange(frame.parts, nb::list()));
        frame.step = Frame::state;
        [[fallthrough]];
      case Frame::state:
        if (const auto state = frame.value.state()) {
          child = *state;
          return true;
        }
        [[fallthrough]];
      default:
        frame.step = Frame::end;
        return false;
    }
  }

  // A part of `frame` is done.
  void accept(Frame& frame, nb::object part) {
    switch (frame.value.kind()) {
      case Kind::list:
        check(PyList_Append(frame.made.ptr(), part.ptr()));
        break;
      case Kind::dict:
        accept_of_dict(frame, frame.made, std::move(part));
        break;
      case Kind::object:
        accept_of_object(frame, std::move(part));
        break;
      default:
        check(PyList_Append(frame.parts.ptr(), part.ptr()));
    }
  }

  // `parts` holds the key until its value is there.
  static void accept_of_dict(Frame& frame, const nb::object& dict, nb::object part) {
    if (frame.has_key) {
      frame.function = std::move(part);
      return;
    }
    if (PyObject_SetItem(dict.ptr(), frame.function.ptr(), part.ptr()) != 0) refuse_key("dict");
    frame.function.reset();
  }

  void accept_of_object(Frame& frame, nb::object part) {
    switch (frame.step) {
      case Frame::callable:
        frame.function = std::move(part);
        frame.step = Frame::arguments;
        break;
      case Frame::arguments:
        make(frame, part);
        frame.step = Frame::elements;
        frame.at = frame.value.elements().begin();
        break;
      case Frame::items:
        if (machine_.is_ordered_dict(frame.made))
          accept_of_dict(frame, frame.made, std::move(part));
        else
          check(PyList_Append(frame.parts.ptr(), part.ptr()));
        break;
      case Frame::state:
        machine_.build(frame.made, part);
        frame.step = Frame::end;
        break;
      default:
        check(PyList_Append(frame.parts.ptr(), part.ptr()));
    }
  }

  void make(Frame& frame, const nb::object& arguments) {
    const bool is_found = frame.value.callable().kind() == Kind::global;
    frame.made = frame.value.is_new_object() ? machine_.create(frame.function, arguments)
                                             : machine_.call(frame.function, arguments, is_found);
    frame.function.reset();
    // From here on the object may be reached again, from its own elements, items or state.
    if (!frame.value.is_private_part()) made_[frame.value] = frame.made;
  }

  nb::object finish(Frame& frame) {
    nb::object done;
    switch (frame.value.kind()) {
      case Kind::tuple:
        done = checked(PyList_AsTuple(frame.parts.ptr()));
        break;
      case Kind::set:
      case Kind::frozen_set:
        done = nb::steal(frame.value.kind() == Kind::set ? PySet_New(frame.parts.ptr())
                                                         : PyFrozenSet_New(frame.parts.ptr()));
        if (!done.is_valid()) refuse_key(to_string(frame.value.kind()));
        break;
      case Kind::persistent_id: {
        const nb::object id = frame.parts[0];
        done = machine_.persistent(id);
        break;
      }
      default:
        return frame.made;
    }
    if (!frame.value.is_private_part()) made_[frame.value] = done;
    return done;
  }

  Owner owner_;
  Machine machine_;
  std::vector<Frame> frames_;
  // What each node has become; invalid while it is being made.
  std::unordered_map<Value, nb::object, Hash, Same> made_;
};

}  // namespace

nb::object evaluate(const Owner& owner, nb::handle machine) {
  return Evaluator(owner, machine).run();
}

}  // namespace weightmap::python
