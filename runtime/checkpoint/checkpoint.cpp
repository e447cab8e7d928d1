#include "weightmap/checkpoint.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "mmap/process_faults.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/checkpoint/open_archive.hpp"
#include "runtime/checkpoint/opener.hpp"
#include "runtime/checkpoint/protection.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"

namespace weightmap {

using catalog::Catalog;
using catalog::Entry;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path, const OpenOptions& options) {
  const Result<OpenOptions> filled = with_defaults(options);
  if (!filled) return tl::unexpected<Error>(filled.error());
  Result<os::File> file =
      os::File::open(path, *filled->writable && *filled->sharing == Sharing::shared);
  if (!file) return about_file(file.error(), path);
  Result<Checkpoint> opened = Access::open(std::move(*file), path, *filled);
  std::error_code unknown;  // the working directory is gone: then the path as it was given
  if (opened) opened->state_->opened_path = std::filesystem::absolute(path, unknown);
  if (opened && unknown) opened->state_->opened_path = path;
  return opened;
}

Result<Checkpoint> Checkpoint::Access::open(os::File file, const std::filesystem::path& name,
                                            const OpenOptions& options) {
  auto state = std::make_unique<State>(std::move(file));
  state->options = options;
  if (Result<void> ok = take_protection(*state); !ok) return about_file(ok.error(), name);
  if (Result<void> ok = Opener(*state, options).run(); !ok) return about_file(ok.error(), name);
  state->file_name = about_file(Error{}, name).value().file;
  Checkpoint checkpoint(std::move(state));
  if (*options.verify == Verify::crc) {
    CrcReport sums = checkpoint.verify_crc();
    if (!sums.faults.empty()) return tl::unexpected<Error>(std::move(sums.faults.front()));
  }
  checkpoint.state_->faults_at_open = os::process_faults();
  return checkpoint;
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint::TensorRange Checkpoint::tensors() const& noexcept {
  return {this, state_->catalog.size()};
}

NamedTensor Checkpoint::tensor_at(std::size_t index) const noexcept {
  const Catalog& catalog = state_->catalog;
  const Entry& entry = catalog[index];
  return {catalog.name(entry),
          state_->view(entry),
          catalog.text(catalog.storages()[entry.storage].key),
          entry.storage_offset,
          entry.file_offset,
          catalog.location(entry),
          (entry.flags & Entry::requires_grad) != 0,
          (entry.flags & Entry::parameter) != 0,
          index,
          entry.storage};
}

std::optional<TensorView> Checkpoint::find(std::string_view name) const& noexcept {
  const std::uint32_t index = state_->catalog.find(name);
  if (index == Catalog::none) return std::nullopt;
  const Entry& entry = state_->catalog[index];
  if ((entry.flags & Entry::ambiguous) != 0) return std::nullopt;
  return state_->view(entry);
}

Result<NamedTensor> Checkpoint::get(std::string_view name) const& {
  const Catalog& catalog = state_->catalog;
  const auto fail = [this](std::string message) {
    Error error{ErrorCode::invalid_argument, std::move(message), Error::no_offset,
                state_->file_name};
    return tl::unexpected<Error>(std::move(error));
  };
  const std::uint32_t index = catalog.find(name);
  if (index == Catalog::none) return fail("has no tensor " + bytes::quote(name));
  if ((catalog[index].flags & Entry::ambiguous) == 0) return tensor_at(index);
  std::uint32_t other = index + 1;
  while (catalog.name(catalog[other]) != name) ++other;
  return fail("has more than one tensor " + bytes::quote(name) + ", at the paths " +
              state_->describe_path(catalog[index]) + " and " +
              state_->describe_path(catalog[other]) + "; ask by path");
}

bool Checkpoint::State::has_path(const Entry& entry,
                                 std::span<const PathPart> path) const noexcept {
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

std::string Checkpoint::State::describe_path(const Entry& entry) const {
  std::string text = "[";
  catalog.visit_path(entry, [&text](const Catalog::PathText& part) {
    if (text.size() > 1) text += ", ";
    text += part.is_integer ? std::string(part.text) : bytes::quote(part.text, 80);
  });
  return text + "]";
}

std::uint32_t Checkpoint::State::find_path(std::span<const PathPart> path) const {
  std::string joined;
  for (const PathPart& part : path) {
    if (&part != path.data()) joined += '.';
    if (part.is_integer())
      joined += std::to_string(part.integer());
    else
      joined += part.key();
  }
  const std::uint32_t first = catalog.find(joined);
  if (first == Catalog::none || has_path(catalog[first], path)) return first;
  if ((catalog[first].flags & Entry::ambiguous) == 0) return Catalog::none;
  for (std::uint32_t i = first + 1; i < catalog.size(); ++i)
    if (catalog.name(catalog[i]) == joined && has_path(catalog[i], path)) return i;
  return Catalog::none;
}

std::optional<TensorView> Checkpoint::find_path(std::span<const PathPart> path) const& {
  const std::uint32_t index = state_->find_path(path);
  if (index == Catalog::none) return std::nullopt;
  return state_->view(state_->catalog[index]);
}

Result<NamedTensor> Checkpoint::get_path(std::span<const PathPart> path) const& {
  const std::uint32_t index = state_->find_path(path);
  if (index != Catalog::none) return tensor_at(index);
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
  const Entry& entry = state_->catalog[index];
  std::vector<PathPart> parts;
  parts.reserve(state_->catalog.path_length(entry));
  state_->catalog.visit_path(entry, [&parts](const Catalog::PathText& part) {
    if (part.is_integer)
      parts.emplace_back(static_cast<std::int64_t>(std::stoll(std::string(part.text))));
    else
      parts.emplace_back(part.text);
  });
  return parts;
}

Value Checkpoint::root() const& noexcept { return {state_->tree.get(), state_->tree->root()}; }

std::optional<NamedTensor> Checkpoint::tensor(const Value& value) const& noexcept {
  const std::optional<std::uint32_t> position = pickle::position_of(value.cell());
  if (!position) return std::nullopt;
  const auto& nodes = state_->nodes;
  const auto node = std::lower_bound(
      nodes.begin(), nodes.end(), *position,
      [](const State::Node& at, std::uint32_t wanted) { return at.position < wanted; });
  if (node == nodes.end() || node->position != *position) return std::nullopt;
  return tensor_at(node->tensor);
}

std::size_t Checkpoint::storage_count() const noexcept { return state_->catalog.storages().size(); }

NamedStorage Checkpoint::storage(std::size_t index) const& noexcept {
  const catalog::StorageEntry& storage = state_->catalog.storages()[index];
  return {state_->catalog.text(storage.key), storage.payload_offset, storage.nbytes, storage.crc32};
}

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
    Result<os::Mapping> made = state.info.protection == Protection::copy
                                   ? os::Mapping::copy_of(state.source(), how)
                                   : os::Mapping::map(state.file, how);
    if (!made) {
      made.error().file = state.file_name;
      return tl::unexpected<Error>(std::move(made.error()));
    }
    state.copy_on_write = std::move(*made);
  }
  return state.copy_on_write.writable_bytes();
}

Result<void> Checkpoint::verify_headers() const {
  Result<void> ok = verify_storage_headers(state_->source(), state_->catalog);
  if (!ok) {
    Error error = ok.error();
    error.file = state_->file_name;
    return tl::unexpected<Error>(std::move(error));
  }
  return ok;
}

}  // namespace weightmap
