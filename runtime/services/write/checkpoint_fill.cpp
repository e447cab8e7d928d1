#include <optional>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/write/reserved_file.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

os::Holes holes_in(const Checkpoint::State& state, const NamedStorage& storage) noexcept {
  if (storage.crc32 != 0) return {};
  return os::find_holes(state.sources[storage.source].file, storage.payload_offset, storage.nbytes);
}

}  // namespace

struct CheckpointFill::State {
  State(const std::filesystem::path& opened, std::unique_ptr<ReservedFile> reserved, Checkpoint map)
      : path(opened), file(std::move(reserved)), checkpoint(std::move(map)) {}

  struct Place {
    NamedTensor tensor;
    const ReservedFile::Storage* storage;
  };
  Result<Place> find(std::string_view name) const;
  Result<void> write(std::string_view name, std::span<const std::byte> elements) const;
  Result<std::span<std::byte>> writable_bytes(std::string_view name);
  Result<std::vector<Storage>> storages() const;
  Result<void> check_written() const;
  Result<void> seal(const Progress& progress);

  // Adds the path to an error.
  template <class T>
  Result<T> about(Result<T> result) const {
    return about_file(std::move(result), path);
  }

  std::filesystem::path path;
  std::unique_ptr<ReservedFile> file;
  Checkpoint checkpoint;
};

Result<CheckpointFill::State::Place> CheckpointFill::State::find(std::string_view name) const {
  TRY_ASSIGN(const NamedTensor tensor, checkpoint.get(name));
  const ReservedFile::Storage* const storage = file->find(tensor.storage);
  if (storage != nullptr) return Place{tensor, storage};
  return tl::unexpected<Error>(
      tensor.about({ErrorCode::invalid_argument,
                    "its storage data/" + bytes::escape(tensor.storage) + " was not reserved",
                    Error::no_offset,
                    {}}));
}

Result<void> CheckpointFill::State::write(std::string_view name,
                                          std::span<const std::byte> elements) const {
  TRY_ASSIGN(const Place place, find(name));
  const auto& [tensor, storage] = place;
  const auto refused = [&tensor = tensor](std::string why) {
    return tl::unexpected<Error>(
        tensor.about({ErrorCode::invalid_argument, std::move(why), Error::no_offset, {}}));
  };
  if (!tensor.view.is_contiguous())
    return refused("is not contiguous; write it through its writable bytes");
  if (elements.size() != tensor.view.nbytes())
    return refused("has " + std::to_string(tensor.view.nbytes()) + " bytes, got " +
                   std::to_string(elements.size()));
  TRY(file->join());
  TRY(os::write_at(file->file().descriptor(), tensor.file_offset, elements));
  return elements.size() == storage->nbytes ? file->mark_written(*storage) : Result<void>{};
}

Result<std::span<std::byte>> CheckpointFill::State::writable_bytes(std::string_view name) {
  TRY_ASSIGN(const Place place, find(name));
  TRY(file->join());
  // So that writes through the mapping cannot fail for want of space.
  TRY(os::reserve_space(file->file().descriptor(), place.storage->offset, place.storage->nbytes));
  return checkpoint.writable_bytes(place.tensor.view);
}

Result<std::vector<CheckpointFill::Storage>> CheckpointFill::State::storages() const {
  TRY_ASSIGN(const std::string marks, file->marks());
  std::vector<Storage> listed;
  for (const ReservedFile::Storage& storage : file->storages())
    listed.push_back({std::to_string(storage.number), storage.offset, storage.nbytes,
                      marks[static_cast<std::size_t>(storage.number)] == torch::mark::written});
  return listed;
}

Result<void> CheckpointFill::State::check_written() const {
  constexpr std::size_t most_named = 10;
  TRY_ASSIGN(const std::vector<Storage> all, storages());
  std::size_t missing = 0;
  std::string names;
  for (const Storage& storage : all) {
    if (storage.is_written) continue;
    if (++missing <= most_named)
      names += (names.empty() ? "" : ", ") + zip::storage_record(storage.key);
  }
  if (missing == 0) return {};
  if (missing > most_named) names += " and " + std::to_string(missing - most_named) + " more";
  return failure(ErrorCode::invalid_argument,
                 std::to_string(missing) + " of " + std::to_string(all.size()) +
                     " reserved storages are not marked as written: " + names);
}

Result<void> CheckpointFill::State::seal(const Progress& progress) {
  TRY(check_written());
  return file->seal(progress);
}

CheckpointFill::CheckpointFill(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
CheckpointFill::CheckpointFill(CheckpointFill&&) noexcept = default;
CheckpointFill& CheckpointFill::operator=(CheckpointFill&&) noexcept = default;
CheckpointFill::~CheckpointFill() = default;

Result<CheckpointFill> CheckpointFill::open(const std::filesystem::path& path) {
  TRY_ASSIGN(std::unique_ptr<ReservedFile> file, about_file(ReservedFile::open(path), path));
  OpenOptions options = OpenOptions::to_look();
  options.sharing = Sharing::shared;
  options.writable = true;
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, options));
  const Generation& now = checkpoint.source(0).generation;
  const Generation& then = file->file().generation();
  if (now.device != then.device || now.inode != then.inode)
    return about_file(
        {ErrorCode::io, "was replaced while it was being opened", Error::no_offset, {}}, path);
  return CheckpointFill(std::make_unique<State>(path, std::move(file), std::move(checkpoint)));
}

const Checkpoint& CheckpointFill::checkpoint() const& noexcept { return state_->checkpoint; }

Result<std::vector<CheckpointFill::Storage>> CheckpointFill::storages() const {
  return state_->about(state_->storages());
}

Result<void> CheckpointFill::write(std::string_view name,
                                   std::span<const std::byte> elements) const {
  return state_->about(state_->write(name, elements));
}

Result<std::span<std::byte>> CheckpointFill::writable_bytes(std::string_view name) {
  return state_->about(state_->writable_bytes(name));
}

Result<void> CheckpointFill::mark_written(std::string_view name) const {
  Result<State::Place> place = state_->find(name);
  if (!place) return tl::unexpected<Error>(std::move(place.error()));
  return state_->about(state_->file->mark_written(*place->storage));
}

Result<void> CheckpointFill::seal(const Progress& progress) {
  return state_->about(state_->seal(progress));
}

std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i) {
    const NamedStorage storage = Backing(checkpoint).storage(i);
    if (reserved ? reserved->is_unwritten(storage.key) : holes_in(state, storage).is_unwritten)
      found.push_back(i);
  }
  return found;
}

std::uint64_t hole_bytes(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i)
    bytes += holes_in(state, Backing(checkpoint).storage(i)).bytes;
  return bytes;
}

}  // namespace weightmap
