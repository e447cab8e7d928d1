#include "runtime/formats/torch/script.hpp"

#include <algorithm>
#include <limits>

#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

constexpr std::string_view data_name = "data";
constexpr std::string_view constants_name = "constants";

Result<zip::RecordBytes> read_pickle(const zip::Directory& directory, std::string_view name,
                                     bytes::ReadCache& cache, std::uint64_t max_bytes) {
  TRY_ASSIGN(zip::RecordBytes content,
             zip::read_record(directory, *directory.find(name), cache, max_bytes));
  if (!content.bytes.empty() && content.bytes.back() == std::byte{'.'}) return content;
  return failure(ErrorCode::corrupt, std::string(name) + ": the pickle ends without a STOP opcode",
                 content.file_offset + content.bytes.size());
}

std::string_view as_text(const zip::RecordBytes& content) noexcept {
  return {reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()};
}

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

// The names separate the pickles, so that the end of one is not the beginning of the next, and an
// error at that place belongs to the first.
Result<ScriptPickle> ScriptPickle::read(const zip::Directory& directory, bytes::ReadCache& cache,
                                        std::uint64_t max_bytes,
                                        std::pmr::memory_resource& memory) {
  constexpr std::size_t most_bytes = std::numeric_limits<std::uint32_t>::max();
  max_bytes = std::min(max_bytes, most_bytes - data_name.size() - constants_name.size());
  ScriptPickle both;
  TRY_ASSIGN(const zip::RecordBytes data, read_pickle(directory, pickle_record, cache, max_bytes));
  TRY_ASSIGN(const zip::RecordBytes constants,
             read_pickle(directory, constants_pickle, cache, max_bytes - data.bytes.size()));
  const std::array pieces = {as_text(data), data_name, constants_name, as_text(constants)};
  std::array<std::uint32_t, pieces.size() + 1> ends{};
  for (std::size_t i = 0; i < pieces.size(); ++i)
    ends[i + 1] = ends[i] + static_cast<std::uint32_t>(pieces[i].size());
  both.program_ = bytes::Buffer(ends.back(), memory);
  char* to = reinterpret_cast<char*>(both.program_.data());
  for (std::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  both.parts_ = {{{ends[1], data_name.size(), 0, ends[1]},
                  {ends[2], constants_name.size(), ends[3], ends[4]}}};
  both.file_offsets_ = {data.file_offset, constants.file_offset};
  return both;
}

Error ScriptPickle::about_record(Error error) const {
  const bool in_constants =
      error.file_offset != Error::no_offset && error.file_offset >= parts_[1].begin;
  error.message =
      std::string(in_constants ? constants_pickle : pickle_record) + ": " + error.message;
  if (error.file_offset == Error::no_offset) return error;
  const std::size_t part = in_constants ? 1 : 0;
  error.file_offset += file_offsets_[part] - parts_[part].begin;
  return error;
}

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
      current = &classes_[full_name(module, name)];
    } else if (current != nullptr && line.starts_with(parameters)) {
      add_names(line.substr(parameters.size()), current->parameters);
    } else if (current != nullptr && line.starts_with(buffers)) {
      add_names(line.substr(buffers.size()), current->buffers);
    }
  }
}

ScriptClasses::Role ScriptClasses::role_of(std::string_view module, std::string_view name,
                                           std::string_view attribute) const {
  const auto found = classes_.find(full_name(module, name));
  if (found == classes_.end()) return Role::attribute;
  if (found->second.parameters.contains(attribute)) return Role::parameter;
  return found->second.buffers.contains(attribute) ? Role::buffer : Role::attribute;
}

}  // namespace weightmap::torch
