// The state of a pickled torch.nn.Module, and of what subclasses it.
#pragma once

#include <optional>

#include "weightmap/value.hpp"

namespace weightmap::value {

// What its state_dict() goes through, in this order.
struct ModuleState {
  Value parameters;
  Value buffers;  // but for those that non_persistent names
  Value modules;
  Value non_persistent;  // a set of texts, as it was pickled; none in files of torch before 1.5
};

// Recognises the state by its keys, whatever class it is of: `_parameters`, `_buffers` and
// `_modules`, each of which is a dict. nullopt for any other value.
std::optional<ModuleState> module_state(const Value& state);

// What a call of a function of torch.fx makes a GraphModule of: its dict, among the arguments,
// which is read as the state of an object is. nullopt for any other value.
std::optional<Value> graph_module_state(const Value& call);

// True for a key of these three.
bool is_module_section(const Value& key) noexcept;

}  // namespace weightmap::value
