#include "runtime/checkpoint/lookup.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/catalog/nearest_names.hpp"
#include "weightmap/value_path.hpp"

namespace weightmap {
namespace {

using catalog::Catalog;
using catalog::Entry;
using State = Checkpoint::State;
using Place = CatalogInUse::Place;

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

// `; did you mean "a", "b" or "c"?`; empty where no name is like it.
[[gnu::cold]] std::string hint(State& state, std::string_view wanted) {
  const Result<const Catalog*> catalog = state.catalogs.whole();
  if (!catalog) return {};
  const std::vector<std::string_view> names = catalog::nearest_names(
      wanted, (*catalog)->size(), [&](std::size_t i) { return (*catalog)->name((**catalog)[i]); });
  if (names.empty()) return {};
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + bytes::quote(names[i]);
  return text + "?";
}

// The path is that of the joined name as a rule, and of a later entry where that is ambiguous.
Place place_of(State& state, std::span<const PathPart> wanted) {
  const std::string joined = name_of(wanted);
  const Place first = state.catalogs.find_entry(joined);
  if (!first.is_found() || has_path(*first.catalog, first.entry(), wanted)) return first;
  if ((first.entry().flags & Entry::ambiguous) == 0) return {first.catalog, Catalog::none};
  const Catalog* const catalog = state.catalogs.whole().value_or(nullptr);
  if (catalog == nullptr) return {};
  for (std::uint32_t i = first.index + 1; i < catalog->size(); ++i)
    if (catalog->name((*catalog)[i]) == joined && has_path(*catalog, (*catalog)[i], wanted))
      return {catalog, i};
  return {catalog, Catalog::none};
}

Result<void> check_not_chunked(const State& state, std::string_view name) {
  const format::Parsed* const own = state.catalogs.own_if_any();
  if (own == nullptr) return {};
  const auto found = own->chunked.find(name);
  if (found == own->chunked.end()) return {};
  return refused(state, ErrorCode::unsupported,
                 "has tensor " + bytes::quote(name) + " in " +
                     std::to_string(own->composed[found->second].part_count) +
                     " pieces; pieces() gives them, gather() copies them into one");
}

tl::unexpected<Error> ambiguous(const State& state, const Catalog& catalog, std::string_view name) {
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

}  // namespace

[[gnu::cold]] Error NamedTensor::about(Error error) const {
  error.message.insert(0, "tensor " + bytes::quote(name) + ": ");
  if (error.file.empty()) error.file = file;
  return error;
}

// An empty tensor stands for one of a catalog that was damaged and cannot be made again.
NamedTensor tensor_at(State& state, std::size_t index) noexcept {
  NamedTensor tensor;
  tensor.index = index;
  const Catalog* const catalog = state.catalogs.with_entry(index);
  if (catalog == nullptr) return tensor;
  const Entry& entry = (*catalog)[index];
  tensor.name = catalog->name(entry);
  tensor.view = state.view(*catalog, entry);
  const catalog::StorageEntry& storage = catalog->storages()[entry.storage];
  tensor.storage = catalog->text(storage.key);
  tensor.storage_offset = entry.storage_offset;
  tensor.file_offset = entry.position - state.sources[storage.source].base();
  tensor.location = catalog->location(entry);
  tensor.requires_grad = (entry.flags & Entry::requires_grad) != 0;
  tensor.is_parameter = (entry.flags & Entry::parameter) != 0;
  tensor.is_buffer = (entry.flags & Entry::buffer) != 0;
  tensor.storage_index = entry.storage;
  tensor.source = storage.source;
  tensor.file = state.sources[storage.source].shown_name;
  tensor.is_copied = state.sources[storage.source].is_copy();
  return tensor;
}

std::optional<TensorView> find_tensor(State& state, std::string_view name) noexcept {
  const Place place = state.catalogs.find(name);
  if (!place.is_found()) return std::nullopt;
  const Entry& entry = place.entry();
  if ((entry.flags & Entry::ambiguous) != 0) return std::nullopt;
  return state.view(*place.catalog, entry);
}

bool contains_tensor(State& state, std::string_view name) noexcept {
  return state.catalogs.find(name).is_found();
}

Result<NamedTensor> get_tensor(State& state, std::string_view name) {
  const Place place = state.catalogs.find_entry(name);
  if (place.catalog == nullptr) return tl::unexpected<Error>(state.catalogs.own_error());
  if (!place.is_found()) {
    TRY(check_not_chunked(state, name));
    return refused(state, ErrorCode::not_found,
                   "has no tensor " + bytes::quote(name) + hint(state, name));
  }
  if ((place.entry().flags & Entry::ambiguous) == 0) return tensor_at(state, place.index);
  const Result<const Catalog*> whole = state.catalogs.whole();
  if (!whole) return tl::unexpected<Error>(whole.error());
  return ambiguous(state, **whole, name);
}

std::optional<TensorView> find_tensor(State& state, std::span<const PathPart> path) {
  const Place place = place_of(state, path);
  if (!place.is_found()) return std::nullopt;
  return state.view(*place.catalog, place.entry());
}

Result<NamedTensor> get_tensor(State& state, std::span<const PathPart> path) {
  const Place place = place_of(state, path);
  if (place.catalog == nullptr) return tl::unexpected<Error>(state.catalogs.own_error());
  if (place.is_found()) return tensor_at(state, place.index);
  std::string text;
  for (const PathPart& part : path) {
    text += text.empty() ? "" : ", ";
    text += part.is_integer() ? std::to_string(part.integer()) : bytes::quote(part.key(), 80);
  }
  return refused(state, ErrorCode::not_found, "has no tensor at the path [" + text + "]");
}

std::vector<PathPart> path_of_tensor(State& state, std::size_t index) {
  const Catalog* const catalog = state.catalogs.with_entry(index);
  if (catalog == nullptr) return {};
  const Entry& entry = (*catalog)[index];
  std::vector<PathPart> parts;
  parts.reserve(catalog->path_length(entry));
  catalog->visit_path(entry, [&parts](const Catalog::PathText& part) {
    if (part.is_integer)
      parts.emplace_back(static_cast<std::int64_t>(std::stoll(std::string(part.text))));
    else
      parts.emplace_back(part.text);
  });
  return parts;
}

std::optional<NamedTensor> tensor_of_value(State& state, const Value& value) noexcept {
  const std::optional<std::uint32_t> position = value::position_of(value.cell());
  const format::Parsed* const own = state.catalogs.own_if_any();
  if (!position || own == nullptr) return std::nullopt;
  const std::optional<std::uint32_t> tensor = own->nodes.find(*position);
  if (!tensor) return std::nullopt;
  return tensor_at(state, *tensor);
}

NamedStorage storage_at(State& state, std::size_t index) noexcept {
  const Catalog* const catalog = state.catalogs.with_storage(index);
  if (catalog == nullptr) return {};
  const catalog::StorageEntry& storage = catalog->storages()[index];
  const std::uint64_t base = state.sources[storage.source].base();
  return {catalog->text(storage.key), storage.position - base, storage.nbytes, storage.crc32,
          storage.source};
}

}  // namespace weightmap
