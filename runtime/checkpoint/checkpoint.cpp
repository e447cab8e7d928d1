#include "weightmap/checkpoint.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "mmap/pages/process_faults.hpp"
#include "runtime/archive/open_archive.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/checkpoint/opener.hpp"
#include "runtime/checkpoint/protection.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"
#include "runtime/shared_catalog/attach.hpp"

namespace weightmap {

using catalog::Catalog;
using catalog::Entry;

namespace {

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

// What stands for a tensor of a catalog that was damaged and cannot be made again.
NamedTensor no_tensor(std::size_t index) noexcept {
  NamedTensor none;
  none.index = index;
  return none;
}

}  // namespace

Result<std::unique_ptr<Checkpoint::State>> Checkpoint::Access::begin_open(
    os::File file, const std::filesystem::path& name, const OpenOptions& filled) {
  auto state = std::make_unique<State>(std::move(file));
  state->options = filled;
  if (Result<void> ok = take_protection(*state); !ok) return about_file(ok.error(), name);
  state->file_name = about_file(Error{}, name).value().file;
  return state;
}

Result<std::unique_ptr<Checkpoint::State>> Checkpoint::Access::begin_open(
    const std::filesystem::path& path, const OpenOptions& filled) {
  Result<os::File> file =
      os::File::open(path, *filled.writable && *filled.sharing == Sharing::shared);
  if (!file) return about_file(file.error(), path);
  Result<std::unique_ptr<State>> state = begin_open(std::move(*file), path, filled);
  if (!state) return state;
  std::error_code unknown;  // the working directory is gone: then the path as it was given
  (*state)->opened_path = std::filesystem::absolute(path, unknown);
  if (unknown) (*state)->opened_path = path;
  (*state)->source_info.path = (*state)->opened_path;
  return state;
}

Result<Checkpoint> Checkpoint::Access::finish_open(std::unique_ptr<State> state) {
  Checkpoint checkpoint(std::move(state));
  if (*checkpoint.state_->options.verify == Verify::crc) {
    CrcReport sums = checkpoint.verify_crc();
    if (!sums.faults.empty()) return tl::unexpected<Error>(std::move(sums.faults.front()));
  }
  checkpoint.state_->faults_at_open = os::process_faults();
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path, const OpenOptions& options) {
  const Result<OpenOptions> filled = with_defaults(options);
  if (!filled) return tl::unexpected<Error>(filled.error());
  Result<std::unique_ptr<State>> state = Access::begin_open(path, *filled);
  if (!state) return tl::unexpected<Error>(state.error());
  const Result<void> opened = *filled->shared_catalog
                                  ? open_with_shared_catalog(**state, *filled)
                                  : Opener(**state, *filled, (*state)->stats).run();
  if (!opened) return about_file(opened.error(), path);
  return Access::finish_open(std::move(*state));
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

NamedTensor Checkpoint::State::tensor_at(std::size_t index) noexcept {
  const Catalog* const from = with_entry(index);
  if (from == nullptr) return no_tensor(index);
  const Catalog& catalog = *from;
  const Entry& entry = catalog[index];
  return {catalog.name(entry),
          view(catalog, entry),
          catalog.text(catalog.storages()[entry.storage].key),
          entry.storage_offset,
          entry.file_offset,
          catalog.location(entry),
          (entry.flags & Entry::requires_grad) != 0,
          (entry.flags & Entry::parameter) != 0,
          index,
          entry.storage,
          0};
}

TensorRange Checkpoint::tensors() const& noexcept {
  const auto at = [](const void* state, std::size_t index) noexcept {
    return static_cast<State*>(const_cast<void*>(state))->tensor_at(index);
  };
  return {state_.get(), at, state_->counts().size()};
}

std::optional<TensorView> Checkpoint::find(std::string_view name) const& noexcept {
  const State::Place place = state_->find(name);
  if (!place.is_found()) return std::nullopt;
  const Entry& entry = place.entry();
  if ((entry.flags & Entry::ambiguous) != 0) return std::nullopt;
  return state_->view(*place.catalog, entry);
}

Result<NamedTensor> Checkpoint::get(std::string_view name) const& {
  const auto fail = [this](std::string message) {
    Error error{ErrorCode::invalid_argument, std::move(message), Error::no_offset,
                state_->file_name};
    return tl::unexpected<Error>(std::move(error));
  };
  const State::Place place = state_->find_entry(name);
  if (place.catalog == nullptr) return tl::unexpected<Error>(state_->own_error());
  if (!place.is_found()) return fail("has no tensor " + bytes::quote(name));
  if ((place.entry().flags & Entry::ambiguous) == 0) return state_->tensor_at(place.index);
  const Result<const Catalog*> whole = state_->whole();
  if (!whole) return tl::unexpected<Error>(whole.error());
  const Catalog& catalog = **whole;
  const std::uint32_t first = catalog.find(name);
  std::string places;
  for (std::size_t i = first, left = 2; i < catalog.size() && left > 0; ++i) {
    if (catalog.name(catalog[i]) != name) continue;
    places += (places.empty() ? "" : " and ") + describe_path(catalog, catalog[i]);
    --left;
  }
  return fail("has more than one tensor " + bytes::quote(name) + ", at the paths " + places +
              "; ask by path");
}

// The path is that of the joined name as a rule, and of a later entry where that is ambiguous.
Checkpoint::State::Place Checkpoint::State::find_path(std::span<const PathPart> wanted) {
  std::string joined;
  for (const PathPart& part : wanted) {
    if (&part != wanted.data()) joined += '.';
    if (part.is_integer())
      joined += std::to_string(part.integer());
    else
      joined += part.key();
  }
  const Place first = find_entry(joined);
  if (!first.is_found() || has_path(*first.catalog, first.entry(), wanted)) return first;
  if ((first.entry().flags & Entry::ambiguous) == 0) return {first.catalog, Catalog::none};
  const Catalog* const catalog = whole().value_or(nullptr);
  if (catalog == nullptr) return {};
  for (std::uint32_t i = first.index + 1; i < catalog->size(); ++i)
    if (catalog->name((*catalog)[i]) == joined && has_path(*catalog, (*catalog)[i], wanted))
      return {catalog, i};
  return {catalog, Catalog::none};
}

std::optional<TensorView> Checkpoint::find_path(std::span<const PathPart> path) const& {
  const State::Place place = state_->find_path(path);
  if (!place.is_found()) return std::nullopt;
  return state_->view(*place.catalog, place.entry());
}

Result<NamedTensor> Checkpoint::get_path(std::span<const PathPart> path) const& {
  const State::Place place = state_->find_path(path);
  if (place.catalog == nullptr) return tl::unexpected<Error>(state_->own_error());
  if (place.is_found()) return state_->tensor_at(place.index);
  std::string text;
  for (const PathPart& part : path) {
    text += text.empty() ? "" : ", ";
    text += part.is_integer() ? std::to_string(part.integer()) : bytes::quote(part.key(), 80);
  }
  return tl::unexpected<Error>(Error{ErrorCode::invalid_argument,
                                     "has no tensor at the path [" + text + "]", Error::no_offset,
                                     state_->file_name});
}

std::vector<PathPart> Checkpoint::path(std::size_t index) const& {
  const Catalog* const catalog = state_->with_entry(index);
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

Value Checkpoint::root() const& noexcept {
  const Parsed* const own = state_->own();
  if (own == nullptr) return {nullptr, pickle::make_cell(Value::Kind::none, 0)};
  return {own->tree.get(), own->tree->root()};
}

Result<void> Checkpoint::load_root() const {
  if (state_->own() != nullptr) return {};
  return tl::unexpected<Error>(state_->own_error());
}

std::optional<NamedTensor> Checkpoint::tensor(const Value& value) const& noexcept {
  const std::optional<std::uint32_t> position = pickle::position_of(value.cell());
  if (!position) return std::nullopt;
  const auto& nodes = state_->parsed.nodes;
  const auto node = std::lower_bound(
      nodes.begin(), nodes.end(), *position,
      [](const Parsed::Node& at, std::uint32_t wanted) { return at.position < wanted; });
  if (node == nodes.end() || node->position != *position) return std::nullopt;
  return state_->tensor_at(node->tensor);
}

std::size_t Checkpoint::storage_count() const noexcept {
  return state_->counts().storages().size();
}

NamedStorage Checkpoint::storage(std::size_t index) const& noexcept {
  const Catalog* const catalog = state_->with_storage(index);
  if (catalog == nullptr) return {};
  const catalog::StorageEntry& storage = catalog->storages()[index];
  return {catalog->text(storage.key), storage.payload_offset, storage.nbytes, storage.crc32,
          0};
}

std::size_t Checkpoint::source_count() const noexcept { return 1; }
const SourceInfo& Checkpoint::source(std::size_t) const& noexcept { return state_->source_info; }
const CheckpointInfo& Checkpoint::info() const& noexcept { return state_->info; }
const OpenStats& Checkpoint::stats() const& noexcept { return state_->stats; }

std::span<const std::byte> Checkpoint::mapping() const& noexcept { return state_->mapping.bytes(); }

Result<std::span<std::byte>> Checkpoint::writable_bytes(const TensorView& view) & {
  if (!state_->info.writable)
    return failure(ErrorCode::invalid_argument, "the checkpoint was not opened writable");
  const std::span<std::byte> all = state_->mapping.writable_bytes();
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return std::span<std::byte>{};
  const std::optional<std::uint64_t> offset = state_->offset_of(part);
  if (!offset)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  return all.subspan(*offset, part.size());
}

Result<std::span<std::byte>> Checkpoint::copy_on_write() const& {
  State& state = *state_;
  if (state.info.writable && state.info.sharing == Sharing::private_)
    return state.mapping.writable_bytes();
  const std::lock_guard lock(state.copy_on_write_mutex);
  if (state.copy_on_write.bytes().empty()) {
    os::MapOptions how{};
    how.sharing = Sharing::private_;
    how.writable = true;
    how.no_reserve = true;  // most of it is only ever read
    how.guard = state.info.protection == Protection::guard;
    Result<os::Mapping> made = os::Mapping::map(state.file, how);
    if (!made) {
      made.error().file = state.file_name;
      return tl::unexpected<Error>(std::move(made.error()));
    }
    state.copy_on_write = std::move(*made);
  }
  return state.copy_on_write.writable_bytes();
}

Result<void> Checkpoint::verify_headers() const {
  const Result<const Catalog*> catalog = state_->whole();
  if (!catalog) return tl::unexpected<Error>(catalog.error());
  Result<void> ok = verify_storage_headers(state_->file, **catalog, state_->options.limits);
  if (!ok) {
    Error error = ok.error();
    error.file = state_->file_name;
    return tl::unexpected<Error>(std::move(error));
  }
  return ok;
}

}  // namespace weightmap
