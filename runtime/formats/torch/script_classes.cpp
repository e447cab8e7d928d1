#include "runtime/formats/torch/script_classes.hpp"

#include <algorithm>
#include <span>

#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"

namespace weightmap::torch {
namespace {

constexpr std::string_view root_module = "__torch__";

// Returns "code/__torch__/a/b.py" for "__torch__.a.b".
std::string record_of(std::string_view module) {
  std::string name = "code/" + std::string(module) + ".py";
  std::replace(name.begin(), name.end() - 3, '.', '/');
  return name;
}

bool is_code_module(std::string_view module) noexcept {
  return module.starts_with(root_module) &&
         (module.size() == root_module.size() || module[root_module.size()] == '.');
}

// Removes one line from the front of `text` and returns it.
std::string_view next_line(std::string_view& text) noexcept {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// Adds the quoted names of a printed list: ["weight", "bias", ]. Identifiers need no escapes.
void add_names(std::string_view list, std::set<std::string, std::less<>>& names) {
  while (true) {
    const std::size_t begin = list.find('"');
    if (begin == std::string_view::npos) return;
    list.remove_prefix(begin + 1);
    const std::size_t end = list.find('"');
    if (end == std::string_view::npos) return;
    names.emplace(list.substr(0, end));
    list.remove_prefix(end + 1);
  }
}

}  // namespace

Result<ScriptClasses> ScriptClasses::read(const zip::Directory& directory, const value::Tree& tree,
                                          bytes::ReadCache& cache, const Limits& limits) {
  ScriptClasses classes;
  std::set<std::string_view> seen;
  std::uint64_t left = limits.record_bytes;
  for (const value::Global* global : tree.globals()) {
    if (!is_code_module(global->module) || !seen.insert(global->module).second) continue;
    const zip::Record* const record = directory.find(record_of(global->module));
    if (record == nullptr) continue;
    TRY_ASSIGN(const zip::RecordBytes content, zip::read_record(directory, *record, cache, left));
    left -= content.bytes.size();
    classes.add_code(global->module,
                     {reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()});
  }
  return classes;
}

void ScriptClasses::add_code(std::string_view module, std::string_view text) {
  constexpr std::string_view declares = "class ";
  constexpr std::string_view parameters = "  __parameters__ = [";
  constexpr std::string_view buffers = "  __buffers__ = [";
  Class* current = nullptr;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.starts_with(declares)) {
      const std::string_view rest = line.substr(declares.size());
      const std::string_view name = rest.substr(0, rest.find_first_of("(:"));
      current = &classes_[std::string(module) + "." + std::string(name)];
    } else if (current != nullptr && line.starts_with(parameters)) {
      add_names(line.substr(parameters.size()), current->parameters);
    } else if (current != nullptr && line.starts_with(buffers)) {
      add_names(line.substr(buffers.size()), current->buffers);
    }
  }
}

ScriptClasses::Role ScriptClasses::role_of(std::string_view module, std::string_view name,
                                           std::string_view attribute) const {
  const auto found = classes_.find(std::string(module) + "." + std::string(name));
  if (found == classes_.end()) return Role::attribute;
  if (found->second.parameters.contains(attribute)) return Role::parameter;
  return found->second.buffers.contains(attribute) ? Role::buffer : Role::attribute;
}

}  // namespace weightmap::torch
