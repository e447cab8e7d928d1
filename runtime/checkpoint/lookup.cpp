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
using catalog::ListedTensors;
using State = Checkpoint::State;

bool has_path(const ListedTensors& listed, std::size_t index,
              std::span<const PathPart> path) noexcept {
  if (listed.path_length(index) != path.size()) return false;
  std::size_t at = 0;
  bool same = true;
  listed.visit_path(index, [&](const Catalog::PathText& part) {
    const PathPart& wanted = path[at++];
    same = same && part.is_integer == wanted.is_integer() &&
           (part.is_integer ? part.text == std::to_string(wanted.integer())
                            : part.text == wanted.key());
  });
  return same;
}

std::string describe_path(const ListedTensors& listed, std::size_t index) {
  std::string text = "[";
  listed.visit_path(index, [&text](const Catalog::PathText& part) {
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
  const ListedTensors listed = state.listed();
  const std::vector<std::string_view> names =
      catalog::nearest_names(wanted, listed.size(), [&](std::size_t i) { return listed.name(i); });
  if (names.empty()) return {};
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + bytes::quote(names[i]);
  return text + "?";
}

// Usually the path is that of the joined name; if that is ambiguous, it may be a later entry's.
std::uint32_t find_index(const ListedTensors& listed, std::span<const PathPart> wanted) {
  const std::string joined = name_of(wanted);
  const std::uint32_t first = listed.find(joined);
  if (first == Catalog::none || has_path(listed, first, wanted)) return first;
  if (!listed.has(first, Entry::ambiguous)) return Catalog::none;
  for (std::uint32_t i = first + 1; i < listed.size(); ++i)
    if (listed.name(i) == joined && has_path(listed, i, wanted)) return i;
  return Catalog::none;
}

// Also finds a tensor by its place among the values, of which a pickled module's names do not tell.
std::uint32_t find_index(const State& state, std::span<const PathPart> wanted) {
  const std::uint32_t index = find_index(state.listed(), wanted);
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
  const ListedTensors listed = state.listed();
  std::string places;
  for (std::size_t i = listed.find(name), left = 2; i < listed.size() && left > 0; ++i) {
    if (listed.name(i) != name) continue;
    places += (places.empty() ? "" : " and ") + describe_path(listed, i);
    --left;
  }
  return refused(state, ErrorCode::invalid_argument,
                 "has more than one tensor " + bytes::quote(name) + ", at the paths " + places +
                     "; ask by path");
}

// Without its place in a file if that is not proven, which the view says.
NamedTensor tensor_at(const State& state, std::size_t index) noexcept {
  const ListedTensors listed = state.listed();
  const TensorPlace place = state.tensors.at(index);
  NamedTensor tensor;
  tensor.index = index;
  tensor.name = listed.name(index);
  tensor.view = state.view(index, place);
  tensor.storage_index = listed.storage(index);
  tensor.storage = listed.key(tensor.storage_index);
  tensor.source = listed.source(tensor.storage_index);
  const SourceFile& source = state.sources[tensor.source];
  if (place.fault == nullptr) [[likely]] {
    tensor.storage_offset = place.entry->storage_offset;
    tensor.file_offset = place.entry->position - source.base();
  }
  tensor.location = listed.location(index);
  tensor.requires_grad = listed.has(index, Entry::requires_grad);
  tensor.is_parameter = listed.has(index, Entry::parameter);
  tensor.is_buffer = listed.has(index, Entry::buffer);
  tensor.file = source.shown_name;
  tensor.is_copied = source.is_copy();
  return tensor;
}

Result<NamedTensor> proven_at(const State& state, std::size_t index) {
  const NamedTensor tensor = tensor_at(state, index);
  TRY(tensor.view.check_no_fault());
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
  return {state_.get(), at, state_->listed().size()};
}

std::optional<TensorView> Checkpoint::find(std::string_view name) const& noexcept {
  const ListedTensors listed = state_->listed();
  const std::uint32_t index = listed.find(name);
  if (index == Catalog::none || listed.has(index, Entry::ambiguous)) return std::nullopt;
  return state_->view(index);
}

bool Checkpoint::contains(std::string_view name) const noexcept {
  return state_->listed().find(name) != Catalog::none;
}

Result<std::uint32_t> Checkpoint::State::index_of(std::string_view name) const {
  const std::uint32_t index = listed().find(name);
  if (index == Catalog::none) {
    TRY(check_not_chunked(*this, name));
    return refused(*this, ErrorCode::not_found,
                   "has no tensor " + bytes::quote(name) + hint(*this, name));
  }
  if (listed().has(index, Entry::ambiguous)) return ambiguous(*this, name);
  return index;
}

Result<const Catalog*> Checkpoint::State::placed() const {
  return about_shown(tensors.all(), shown_name());
}

Result<NamedTensor> Checkpoint::get(std::string_view name) const& {
  TRY_ASSIGN(const std::uint32_t index, state_->index_of(name));
  return proven_at(*state_, index);
}

Result<NamedTensor> Checkpoint::get_path(std::span<const PathPart> path) const& {
  const std::uint32_t index = find_index(*state_, path);
  if (index != Catalog::none) return proven_at(*state_, index);
  std::string text;
  for (const PathPart& part : path) {
    text += text.empty() ? "" : ", ";
    text += part.is_integer() ? std::to_string(part.integer()) : bytes::quote(part.key(), 80);
  }
  return refused(*state_, ErrorCode::not_found, "has no tensor at the path [" + text + "]");
}

std::vector<PathPart> Checkpoint::path(std::size_t index) const& {
  const ListedTensors listed = state_->listed();
  std::vector<PathPart> parts;
  parts.reserve(listed.path_length(index));
  listed.visit_path(index, [&parts](const Catalog::PathText& part) {
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
  const ListedTensors listed = Checkpoint::Access::state(checkpoint).listed();
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < listed.size(); ++i)
    if (listed.name(i) == pattern || compiled.matches(listed.name(i))) found.push_back(i);
  return found;
}

std::string_view tensor_name(const Checkpoint& checkpoint, std::size_t index) noexcept {
  return Checkpoint::Access::state(checkpoint).listed().name(index);
}

std::string NamedStorage::record() const { return zip::storage_record(key); }

bool ReservedStorages::is_unwritten(std::string_view key) const noexcept {
  return std::binary_search(unwritten.begin(), unwritten.end(), bytes::decimal(key));
}

Backing::Backing(const Checkpoint& checkpoint) noexcept
    : state_(&Checkpoint::Access::state(checkpoint)) {}

std::size_t Backing::storage_count() const noexcept { return state_->listed().storage_count(); }

NamedStorage Backing::storage(std::size_t index) const noexcept {
  const ListedTensors listed = state_->listed();
  const std::uint32_t source = listed.source(index);
  const auto [place, fault] = state_->tensors.storage(index);
  if (fault != nullptr) return {listed.key(index), 0, 0, 0, source, fault};
  return {listed.key(index), place->position - state_->sources[source].base(), place->nbytes,
          place->crc32, source};
}

}  // namespace weightmap
