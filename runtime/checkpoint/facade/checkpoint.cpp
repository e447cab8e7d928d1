// The members of Checkpoint, and functions beside it. Each calls one function, whose header
// documents it.
#include "weightmap/checkpoint.hpp"

#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/checkpoint/copies.hpp"
#include "runtime/checkpoint/demand.hpp"
#include "runtime/checkpoint/freshness.hpp"
#include "runtime/checkpoint/late_values.hpp"
#include "runtime/checkpoint/lookup.hpp"
#include "runtime/checkpoint/open.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_headers.hpp"
#include "runtime/checkpoint/writable.hpp"

namespace weightmap {
Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  return open_paths({&path, 1}, complete);
}

Result<Checkpoint> Checkpoint::open_files(std::span<const std::filesystem::path> paths,
                                          const OpenOptions& options) {
  if (paths.empty())
    return failure(ErrorCode::invalid_argument, "the list of files to open is empty");
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  return open_paths(paths, complete);
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open_shared(const std::filesystem::path& path,
                                                                  const OpenOptions& options) {
  TRY_ASSIGN(Checkpoint checkpoint, open(path, options));
  return std::make_shared<const Checkpoint>(std::move(checkpoint));
}

Result<Checkpoint> Checkpoint::open_descriptor(int descriptor, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  return weightmap::open_descriptor(descriptor, complete);
}

Result<Checkpoint> Checkpoint::open_memory(std::span<const std::byte> bytes,
                                           std::shared_ptr<const void> owner,
                                           const OpenOptions& options) {
  TRY_ASSIGN(OpenOptions complete, with_environment(options));
  if (!complete.copy_on_write) complete.copy_on_write = CopyOnWrite::off;
  TRY_ASSIGN(complete, with_defaults(std::move(complete)));
  return weightmap::open_memory(bytes, std::move(owner), complete);
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

TensorRange Checkpoint::tensors() const& noexcept {
  const auto at = [](const void* state, std::size_t index) noexcept {
    return tensor_at(*static_cast<const State*>(state), index);
  };
  return {state_.get(), at, state_->catalog().size()};
}
std::optional<TensorView> Checkpoint::find(std::string_view name) const& noexcept {
  return find_tensor(*state_, name);
}
bool Checkpoint::contains(std::string_view name) const noexcept {
  return contains_tensor(*state_, name);
}
Result<NamedTensor> Checkpoint::get(std::string_view name) const& {
  return get_tensor(*state_, name);
}
Result<NamedTensor> Checkpoint::get_path(std::span<const PathPart> path) const& {
  return get_tensor(*state_, path);
}
std::vector<PathPart> Checkpoint::path(std::size_t index) const& {
  return path_of_tensor(*state_, index);
}

Value Checkpoint::root() const& noexcept {
  const value::Tree& tree = *state_->content().tree;
  return {&tree, tree.root()};
}
Result<Value> Checkpoint::values() const& { return values_of(*state_); }
std::optional<NamedTensor> Checkpoint::tensor(const Value& value) const& noexcept {
  return tensor_of_value(*state_, value);
}

std::string NamedStorage::record() const { return zip::storage_record(key); }

std::size_t Checkpoint::source_count() const noexcept { return state_->sources.size(); }
const SourceInfo& Checkpoint::source(std::size_t index) const& noexcept {
  return state_->sources[index].info;
}
const CheckpointInfo& Checkpoint::info() const& noexcept { return state_->info; }
const OpenStats& Checkpoint::stats() const& noexcept { return state_->stats; }

std::span<const std::byte> Checkpoint::mapping() const& noexcept { return state_->mapping.bytes(); }
Result<std::span<std::byte>> Checkpoint::writable_bytes(const TensorView& view) & {
  return weightmap::writable_bytes(*state_, view);
}
CheckpointState Checkpoint::state() const noexcept { return state_of(*state_); }
bool Checkpoint::is_current() const noexcept { return weightmap::is_current(*state_); }
Result<Checkpoint> Checkpoint::reopen() const { return open_again(*state_); }

Result<void> Checkpoint::gather(const TensorView& view, std::span<std::byte> out) const {
  return weightmap::gather(*state_, view, out);
}
Result<void> Checkpoint::demand(const TensorView& view) const {
  return weightmap::demand(*state_, view);
}
std::span<const std::string> left_out_values(const Checkpoint& checkpoint) noexcept {
  return left_out_of(Checkpoint::Access::state(checkpoint));
}
Result<void> verify_headers(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  Result<void> same = verify_headers(state);
  if (!same) return about_shown(std::move(same.error()), state.shown_name());
  return same;
}

}  // namespace weightmap
