// The members of Checkpoint and Backing that find tensors and storages.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/catalog/nearest_names.hpp"
#include "runtime/base/name_pattern.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap {
namespace {

using catalog::Catalog;
using catalog::Entry;
using State = Checkpoint::State;

bool has_path(const Catalog& catalog, const Entry& entry, std::span<const PathPart> path) noexcept {
  if (catalog.path_length(entry) != path.size()) return false;
  std::size_t at = 0;
  bool same = true;
  catalog.visit_path(entry, [&](const Catalog::PathText& part) {
    const PathPart& wanted = path[at++];
    same = same && part.is_integer == wanted.is_integer() &&
           (part.is_integer ? part.text == std::to_string(wanted.integer())
                            : part.text == wanted.key());
  });
  return same;
}

std::string describe_path(const Catalog& catalog, const Entry& entry) {
  std::string text = "[";
  catalog.visit_path(entry, [&text](const Catalog::PathText& part) {
    if (text.size() > 1) text += ", ";
    text += part.is_integer ? std::string(part.text) : bytes::quote(part.text, 80);
  });
  return text + "]";
}

tl::unexpected<Error> refused(const State& state, ErrorCode code, std::string message) {
  return about_shown(Error{code, std::move(message), Error::no_offset, {}}, state.shown_name());
}

// Returns `; did you mean "a", "b" or "c"?`; empty if no name is similar.
[[gnu::cold]] std::string hint(const State& state, std::string_view wanted) {
  const Catalog& catalog = state.catalog();
  const std::vector<std::string_view> names = catalog::nearest_names(
      wanted, catalog.size(), [&](std::size_t i) { return catalog.name(catalog[i]); });
  if (names.empty()) return {};
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + bytes::quote(names[i]);
  return text + "?";
}

// Usually the path is that of the joined name; if that is ambiguous, it may be a later entry's.
std::uint32_t find_index(const Catalog& catalog, std::span<const PathPart> wanted) {
  const std::string joined = name_of(wanted);
  const std::uint32_t first = catalog.find(joined);
  if (first == Catalog::none || has_path(catalog, catalog[first], wanted)) return first;
  if ((catalog[first].flags & Entry::ambiguous) == 0) return Catalog::none;
  for (std::uint32_t i = first + 1; i < catalog.size(); ++i)
    if (catalog.name(catalog[i]) == joined && has_path(catalog, catalog[i], wanted)) return i;
  return Catalog::none;
}

// Also finds a tensor by its place among the values, of which a pickled module's names do not tell.
std::uint32_t find_index(const State& state, std::span<const PathPart> wanted) {
  const std::uint32_t index = find_index(state.catalog(), wanted);
  const format::Parsed& content = state.content();
  if (index != Catalog::none || content.tree == nullptr) return index;
  const std::optional<Value> value =
      find_value(Value(content.tree.get(), content.tree->root()), wanted);
  const auto position = value ? value::position_of(value->cell()) : std::nullopt;
  return position ? content.nodes.find(*position).value_or(Catalog::none) : Catalog::none;
}

Result<void> check_not_chunked(const State& state, std::string_view name) {
  const format::Parsed& content = state.content();
  const auto found = content.chunked.find(name);
  if (found == content.chunked.end()) return {};
  return refused(state, ErrorCode::unsupported,
                 "has tensor " + bytes::quote(name) + " in " +
                     std::to_string(content.composed[found->second].part_count) +
                     " pieces; pieces() gives them, gather() copies them into one");
}

tl::unexpected<Error> ambiguous(const State& state, std::string_view name) {
  const Catalog& catalog = state.catalog();
  std::string places;
  for (std::size_t i = catalog.find(name), left = 2; i < catalog.size() && left > 0; ++i) {
    if (catalog.name(catalog[i]) != name) continue;
    places += (places.empty() ? "" : " and ") + describe_path(catalog, catalog[i]);
    --left;
  }
  return refused(state, ErrorCode::invalid_argument,
                 "has more than one tensor " + bytes::quote(name) + ", at the paths " + places +
                     "; ask by path");
}

NamedTensor tensor_at(const State& state, std::size_t index) noexcept {
  const Catalog& catalog = state.catalog();
  const Entry& entry = catalog[index];
  const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
  NamedTensor tensor;
  tensor.index = index;
  tensor.name = catalog.name(entry);
  tensor.view = state.view(entry);
  tensor.storage = catalog.text(storage.key);
  tensor.storage_offset = entry.storage_offset;
  tensor.file_offset = entry.position - state.sources[storage.source].base();
  tensor.location = catalog.location(entry);
  tensor.requires_grad = (entry.flags & Entry::requires_grad) != 0;
  tensor.is_parameter = (entry.flags & Entry::parameter) != 0;
  tensor.is_buffer = (entry.flags & Entry::buffer) != 0;
  tensor.storage_index = entry.storage;
  tensor.source = storage.source;
  tensor.file = state.sources[storage.source].shown_name;
  tensor.is_copied = state.sources[storage.source].is_copy();
  return tensor;
}

}  // namespace

[[gnu::cold]] Error NamedTensor::about(Error error) const {
  error.message.insert(0, "tensor " + bytes::quote(name) + ": ");
  if (error.file.empty()) error.file = file;
  return error;
}

TensorRange Checkpoint::tensors() const& noexcept {
  const auto at = [](const void* state, std::size_t index) noexcept {
    return tensor_at(*static_cast<const State*>(state), index);
  };
  return {state_.get(), at, state_->catalog().size()};
}

std::optional<TensorView> Checkpoint::find(std::string_view name) const& noexcept {
  const Catalog& catalog = state_->catalog();
  const std::uint32_t index = catalog.find(name);
  if (index == Catalog::none) return std::nullopt;
  const Entry& entry = catalog[index];
  if ((entry.flags & Entry::ambiguous) != 0) return std::nullopt;
  return state_->view(entry);
}

bool Checkpoint::contains(std::string_view name) const noexcept {
  return state_->catalog().find(name) != Catalog::none;
}

Result<NamedTensor> Checkpoint::get(std::string_view name) const& {
  const std::uint32_t index = state_->catalog().find(name);
  if (index == Catalog::none) {
    TRY(check_not_chunked(*state_, name));
    return refused(*state_, ErrorCode::not_found,
                   "has no tensor " + bytes::quote(name) + hint(*state_, name));
  }
  if ((state_->catalog()[index].flags & Entry::ambiguous) != 0) return ambiguous(*state_, name);
  return tensor_at(*state_, index);
}

Result<NamedTensor> Checkpoint::get_path(std::span<const PathPart> path) const& {
  const std::uint32_t index = find_index(*state_, path);
  if (index != Catalog::none) return tensor_at(*state_, index);
  std::string text;
  for (const PathPart& part : path) {
    text += text.empty() ? "" : ", ";
    text += part.is_integer() ? std::to_string(part.integer()) : bytes::quote(part.key(), 80);
  }
  return refused(*state_, ErrorCode::not_found, "has no tensor at the path [" + text + "]");
}

std::vector<PathPart> Checkpoint::path(std::size_t index) const& {
  const Catalog& catalog = state_->catalog();
  const Entry& entry = catalog[index];
  std::vector<PathPart> parts;
  parts.reserve(catalog.path_length(entry));
  catalog.visit_path(entry, [&parts](const Catalog::PathText& part) {
    if (part.is_integer)
      parts.emplace_back(static_cast<std::int64_t>(std::stoll(std::string(part.text))));
    else
      parts.emplace_back(part.text);
  });
  return parts;
}

std::optional<NamedTensor> Checkpoint::tensor(const Value& value) const& noexcept {
  const std::optional<std::uint32_t> position = value::position_of(value.cell());
  if (!position) return std::nullopt;
  const format::Values* const late = state_->late_values.load(std::memory_order_acquire);
  const bool is_late = late != nullptr && value.tree() == late->tree.get();
  const std::optional<std::uint32_t> index =
      (is_late ? late->nodes : state_->content().nodes).find(*position);
  if (!index) return std::nullopt;
  return tensor_at(*state_, *index);
}

std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint, std::string_view pattern) {
  const NamePattern compiled(pattern);
  std::vector<std::size_t> found;
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (tensor.name == pattern || compiled.matches(tensor.name)) found.push_back(tensor.index);
  return found;
}

std::string NamedStorage::record() const { return zip::storage_record(key); }

bool ReservedStorages::is_unwritten(std::string_view key) const noexcept {
  return std::binary_search(unwritten.begin(), unwritten.end(), bytes::decimal(key));
}

Backing::Backing(const Checkpoint& checkpoint) noexcept
    : state_(&Checkpoint::Access::state(checkpoint)) {}

std::size_t Backing::storage_count() const noexcept { return state_->catalog().storages().size(); }

NamedStorage Backing::storage(std::size_t index) const noexcept {
  const catalog::StorageEntry& storage = state_->catalog().storages()[index];
  const std::uint64_t base = state_->sources[storage.source].base();
  return {state_->catalog().text(storage.key), storage.position - base, storage.nbytes,
          storage.crc32, storage.source};
}

}  // namespace weightmap
