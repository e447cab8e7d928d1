#include "runtime/base/value/module_state.hpp"

#include <string_view>

namespace weightmap::value {
namespace {

constexpr std::string_view parameters = "_parameters";
constexpr std::string_view buffers = "_buffers";
constexpr std::string_view modules = "_modules";
constexpr std::string_view non_persistent = "_non_persistent_buffers_set";

// True for a dict, or an OrderedDict, which older versions of torch have there.
bool is_dict(const Value& value) noexcept {
  if (value.kind() == Value::Kind::dict) return true;
  const Value type = value.callable();
  return type.module() == "collections" && type.name() == "OrderedDict" &&
         value.arguments().size() == 0;
}

}  // namespace

bool is_module_section(const Value& key) noexcept {
  const std::optional<std::string_view> text = key.string();
  return text == parameters || text == buffers || text == modules;
}

std::optional<Value> graph_module_state(const Value& call) {
  if (call.kind() != Value::Kind::object || !call.callable().module().starts_with("torch.fx."))
    return std::nullopt;
  for (const Value& argument : call.arguments().elements())
    if (module_state(argument)) return argument;
  return std::nullopt;
}

std::optional<ModuleState> module_state(const Value& state) {
  if (state.kind() != Value::Kind::dict) return std::nullopt;
  ModuleState found;
  for (const auto& [key, item] : state.items()) {
    const std::optional<std::string_view> text = key.string();
    if (text == parameters) found.parameters = item;
    if (text == buffers) found.buffers = item;
    if (text == modules) found.modules = item;
    if (text == non_persistent) found.non_persistent = item;
  }
  const bool is_module =
      is_dict(found.parameters) && is_dict(found.buffers) && is_dict(found.modules);
  return is_module ? std::optional(found) : std::nullopt;
}

}  // namespace weightmap::value
