#include "python/src/evaluator.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/src/direct_tensors.hpp"
#include "python/src/errors.hpp"
#include "python/src/machine.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "python/src/torch_door.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

using Kind = Value::Kind;

// Little-endian two's complement.
nb::object big_integer(std::span<const std::byte> digits) {
  const nb::bytes text(reinterpret_cast<const char*>(digits.data()), digits.size());
  nb::kwargs is_signed;
  is_signed["signed"] = true;
  const nb::handle type(reinterpret_cast<PyObject*>(&PyLong_Type));
  return type.attr("from_bytes")(text, "little", **is_signed);
}

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

// The object made from a node, and the facts that its containers need.
struct Made {
  nb::object object;             // invalid while a tuple, set or call is being made
  std::uint64_t cells = 1;       // that hashing the object may walk: a shared part counts each time
  std::uint32_t changed_at = 0;  // where in the pickle it, or what it holds, was changed last

  // A container holds `part` as well.
  void include(const Made& part) {
    constexpr std::uint64_t most = std::uint64_t{1} << 48;  // no sum of two of them overflows
    cells = std::min(cells + part.cells, most);
    changed_at = std::max(changed_at, part.changed_at);
  }
};

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
  nb::object function;   // object: the callable; of the item of a dict: the key
  Made made;             // the container or object itself, once there is one
  nb::object parts = nb::list();
};

class Evaluator {
 public:
  Evaluator(const Owner& owner, nb::handle machine) : owner_(owner), machine_(machine) {
    const nb::object direct = machine.attr("direct");
    if (!direct.is_none() && torch_door_is_open())
      direct_.emplace(owner, direct, [this](const Value& global) { return enter(global).object; });
  }

  nb::object run(const Value& from) {
    Made done = enter(from);
    while (!frames_.empty()) {
      if (done.object.is_valid()) {
        accept(frames_.back(), std::exchange(done, {}));
      }
      Frame& frame = frames_.back();
      Value child;
      if (next(frame, child)) {
        done = enter(child);
      } else {
        done = finish(frame);
        frames_.pop_back();
      }
    }
    return done.object;
  }

 private:
  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };

  // The object if it can be had at once; else pushes a frame and answers an invalid object.
  Made enter(const Value& value) {
    ++entered_;
    switch (value.kind()) {
      case Kind::tuple:
      case Kind::list:
      case Kind::dict:
      case Kind::set:
      case Kind::frozen_set:
      case Kind::global:
      case Kind::object:
      case Kind::persistent_id:
      case Kind::byte_array:
        break;
      case Kind::string:
        if (machine_.wants_texts()) return text(value);
        [[fallthrough]];
      default:
        return {to_python(value)};
    }
    if (!value.may_be_shared()) return push(value);
    const auto [known, is_new] = made_.try_emplace(value);
    if (!is_new) {
      if (known->second.object.is_valid()) return known->second;
      raise(ErrorCode::unsupported,
            "the pickle has a " + std::string(to_string(value.kind())) + " that contains itself");
    }
    Made& made = known->second;
    if (value.kind() == Kind::global) return made = {machine_.find_global(value)};
    if (value.kind() == Kind::byte_array) return made = {to_python(value)};
    if (machine_.wants_tensors() && value.kind() == Kind::object)
      if (const auto tensor = owner_->checkpoint().tensor(value))
        return made = {machine_.tensor({owner_, *tensor})};
    if (direct_ && value.kind() == Kind::object)
      if (nb::object tensor = make_at_once(value); tensor.is_valid())
        return made = {std::move(tensor)};
    if (value.kind() == Kind::list) made.object = nb::list();
    if (value.kind() == Kind::dict) made.object = nb::dict();
    const nb::object container = made.object;
    push(value);
    frames_.back().made.object = container;
    return {};
  }

  Made text(const Value& value) {
    const auto [known, is_new] = made_.try_emplace(value);
    if (is_new) known->second.object = machine_.text(to_python(value));
    return known->second;
  }

  // The tensor or parameter that a call would answer, made at once. Invalid if it takes frames.
  nb::object make_at_once(const Value& call) {
    return DirectTensors::is_parameter(call) ? make_parameter(call) : make_tensor(call);
  }

  nb::object make_tensor(const Value& call) {
    nb::object tensor = direct_->make(call);
    if (!tensor.is_valid()) return tensor;
    const Value hooks = call.arguments()[DirectTensors::hooks_argument];
    if (!hooks.is_none()) nb::setattr(tensor, backward_hooks_, make_hooks(hooks));
    return tensor;
  }

  // The function is called, but its arguments are made without frames.
  nb::object make_parameter(const Value& call) {
    const Value tensor = call.arguments()[0];
    const auto [known, is_new] = made_.try_emplace(tensor);
    if (!is_new) return {};
    nb::object& made = known->second.object;  // stays where it is, other than `known`
    const nb::object function = enter(call.callable()).object;
    made = make_tensor(tensor);
    if (!made.is_valid()) {
      made_.erase(tensor);
      return {};
    }
    const nb::object arguments =
        nb::make_tuple(made, to_python(call.arguments()[1]), make_hooks(call.arguments()[2]));
    return machine_.call(function, arguments, true);
  }

  // Makes the result of a call without arguments, which other places may mention, too.
  nb::object make_hooks(const Value& call) {
    if (!call.may_be_shared()) return call_plainly(call);
    const auto [known, is_new] = made_.try_emplace(call);
    if (is_new) known->second.object = call_plainly(call);
    return known->second.object;
  }

  nb::object call_plainly(const Value& call) {
    return machine_.call(enter(call.callable()).object, nb::tuple(), true);
  }

  Made push(const Value& value) {
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
          machine_.extend(frame.made.object, std::exchange(frame.parts, nb::list()));
        frame.step = Frame::items;
        frame.item = frame.value.items().begin();
        [[fallthrough]];
      case Frame::items:
        if (next_item(frame, child)) return true;
        if (size_of(frame.parts) != 0)
          machine_.update(frame.made.object, std::exchange(frame.parts, nb::list()));
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
  void accept(Frame& frame, Made part) {
    if (is_hashed(frame)) count_hashed(part);
    if (frame.value.kind() != Kind::object) frame.made.include(part);
    switch (frame.value.kind()) {
      case Kind::list:
        check(PyList_Append(frame.made.object.ptr(), part.object.ptr()));
        break;
      case Kind::dict:
        accept_of_dict(frame, std::move(part.object));
        break;
      case Kind::object:
        accept_of_object(frame, std::move(part));
        break;
      default:
        check(PyList_Append(frame.parts.ptr(), part.object.ptr()));
    }
  }

  // The part that is done becomes a key, or an element of a set. So may the elements of an object.
  static bool is_hashed(const Frame& frame) {
    switch (frame.value.kind()) {
      case Kind::set:
      case Kind::frozen_set:
        return true;
      case Kind::dict:
        return frame.has_key;
      case Kind::object:
        return frame.step == Frame::elements || (frame.step == Frame::items && frame.has_key);
      default:
        return false;
    }
  }

  // Tuples made of one another may be walked more often than any time allows. What is not shared
  // counts once, so no other file comes near the limit.
  void count_hashed(const Made& part) {
    constexpr std::uint64_t base = std::uint64_t{1} << 24;
    hashed_ += part.cells;
    if (hashed_ > base + 16 * entered_)
      raise(ErrorCode::limit_exceeded,
            "the keys of the pickle are made of so many shared parts that they cannot be hashed in "
            "a reasonable time");
  }

  // `function` holds the key until its value is there.
  static void accept_of_dict(Frame& frame, nb::object part) {
    if (frame.has_key) {
      frame.function = std::move(part);
      return;
    }
    if (PyObject_SetItem(frame.made.object.ptr(), frame.function.ptr(), part.ptr()) != 0)
      refuse_key("dict");
    frame.function.reset();
  }

  void accept_of_object(Frame& frame, Made part) {
    if (frame.step != Frame::callable) frame.made.include(part);
    switch (frame.step) {
      case Frame::callable:
        frame.function = std::move(part.object);
        frame.step = Frame::arguments;
        break;
      case Frame::arguments:
        make(frame, part);
        frame.step = Frame::elements;
        frame.at = frame.value.elements().begin();
        break;
      case Frame::items:
        if (machine_.is_ordered_dict(frame.made.object))
          accept_of_dict(frame, std::move(part.object));
        else
          check(PyList_Append(frame.parts.ptr(), part.object.ptr()));
        break;
      case Frame::state:
        if (const std::optional<std::uint32_t> late = frame.value.state_changed_at())
          raise(ErrorCode::unsupported,
                "the pickle changes the state of an object after it was set, at byte " +
                    std::to_string(*late) + " of the pickle");
        machine_.build(frame.made.object, part.object);
        frame.step = Frame::end;
        break;
      default:
        check(PyList_Append(frame.parts.ptr(), part.object.ptr()));
    }
  }

  void make(Frame& frame, const Made& arguments) {
    // The callable would have seen its arguments as they were then, and what they were is not kept.
    if (arguments.changed_at > frame.value.position())
      raise(ErrorCode::unsupported,
            "the pickle changes an argument of a call after the call, at byte " +
                std::to_string(arguments.changed_at) + " of the pickle");
    const bool is_found = frame.value.callable().kind() == Kind::global;
    if (!machine_.is_function(frame.function)) count_hashed(arguments);  // such as set(elements)
    frame.made.object = frame.value.is_new_object()
                            ? machine_.create(frame.function, arguments.object)
                            : machine_.call(frame.function, arguments.object, is_found);
    frame.function.reset();
    // From here on the object may be reached again, from its own elements, items or state.
    if (frame.value.may_be_shared()) made_[frame.value] = {frame.made.object};
  }

  Made finish(Frame& frame) {
    Made& made = frame.made;
    made.changed_at = std::max(made.changed_at, frame.value.changed_at());
    switch (frame.value.kind()) {
      case Kind::tuple:
        made.object = checked(PyList_AsTuple(frame.parts.ptr()));
        break;
      case Kind::set:
      case Kind::frozen_set:
        made.object =
            nb::steal(frame.value.kind() == Kind::set ? PySet_New(frame.parts.ptr())
                                                      : PyFrozenSet_New(frame.parts.ptr()));
        if (!made.object.is_valid()) refuse_key(to_string(frame.value.kind()));
        break;
      case Kind::persistent_id: {
        const nb::object id = frame.parts[0];
        if (direct_) direct_->before_storage(frame.value.persistent_id());
        made = {machine_.persistent(id)};
        break;
      }
      case Kind::object:
        if (machine_.wants_finish()) made.object = machine_.finish(made.object);
        break;
      default:
        break;
    }
    if (frame.value.may_be_shared()) made_[frame.value] = made;
    return std::move(made);
  }

  Owner owner_;
  Machine machine_;
  std::optional<DirectTensors> direct_;
  const nb::str backward_hooks_{"_backward_hooks"};
  std::vector<Frame> frames_;
  // The object made from each node; invalid while it is being made.
  std::unordered_map<Value, Made, Hash, Same> made_;
  std::uint64_t entered_ = 0;  // values so far
  std::uint64_t hashed_ = 0;   // cells that hashing the keys so far may have walked
};

}  // namespace

nb::object to_python(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::boolean:
      return nb::bool_(*value.boolean());
    case Value::Kind::integer:
      return checked(PyLong_FromLongLong(*value.integer()));
    case Value::Kind::real:
      return checked(PyFloat_FromDouble(*value.real()));
    case Value::Kind::string:
      return to_str(*value.string());
    case Value::Kind::bytes: {
      const std::span<const std::byte> bytes = *value.bytes();
      return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    case Value::Kind::byte_array: {
      const std::span<const std::byte> bytes = *value.bytes();
      return checked(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                                   static_cast<Py_ssize_t>(bytes.size())));
    }
    case Value::Kind::big_integer:
      return big_integer(*value.big_integer());
    default:
      return nb::none();
  }
}

nb::tuple to_python(std::span<const PathPart> path) {
  nb::list parts;
  for (const PathPart& part : path) {
    if (part.is_integer())
      parts.append(part.integer());
    else
      parts.append(to_str(part.key()));
  }
  return nb::tuple(parts);
}

nb::object evaluate(const Owner& owner, nb::handle machine, const Value& from) {
  return Evaluator(owner, machine).run(from);
}

}  // namespace weightmap::python
