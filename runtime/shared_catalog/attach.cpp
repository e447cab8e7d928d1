#include "runtime/shared_catalog/attach.hpp"

#include <bit>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "runtime/archive/open_archive.hpp"
#include "runtime/checkpoint/opener.hpp"
#include "runtime/checkpoint/verify_storages.hpp"
#include "runtime/shared_catalog/publish_catalog.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::Access::State;
using Clock = std::chrono::steady_clock;

// Whatever is refused under the wider limits is refused under the narrower ones.
bool lies_within(const Limits& made_under, const Limits& allowed) noexcept {
  return made_under.pickle_bytes <= allowed.pickle_bytes &&
         made_under.directory_bytes <= allowed.directory_bytes &&
         made_under.record_bytes <= allowed.record_bytes &&
         made_under.base_memory <= allowed.base_memory && made_under.depth <= allowed.depth &&
         made_under.tensors <= allowed.tensors && made_under.rank <= allowed.rank;
}

bool is_big(ByteOrder order) noexcept {
  return order == ByteOrder::big ||
         (order == ByteOrder::native && std::endian::native == std::endian::big);
}

tl::unexpected<Error> refuse(std::string why) {
  return failure(ErrorCode::invalid_argument, "the shared catalog " + std::move(why));
}

// invalid_argument: the catalog is good, but not for these options.
Result<void> check_is_for(const catalog::Description& made, const State& state) {
  if (!lies_within(made.limits, state.options.limits))
    return refuse("was made under wider limits than these options allow");
  if (made.byte_order_assumed && made.big_endian != is_big(*state.options.missing_byte_order))
    return refuse("was made under the assumption of another byte order");
  return {};
}

Result<std::unique_ptr<Attached>> check(Result<os::SharedBlock> block, bool is_file,
                                        const State& state) {
  if (!block) return tl::unexpected<Error>(block.error());
  Result<catalog::Published> published =
      catalog::Published::read(block->bytes(), state.file.size());
  if (!published) return tl::unexpected<Error>(published.error());
  // Under this file's name it can only have been put there on purpose.
  if (published->description().generation != state.generation)
    return failure(is_file ? ErrorCode::corrupt : ErrorCode::invalid_argument,
                   "the shared catalog is about another file, or about this one as it was before "
                   "it changed");
  if (Result<void> ok = check_is_for(published->description(), state); !ok)
    return tl::unexpected<Error>(ok.error());
  return std::make_unique<Attached>(Attached{std::move(*block), std::move(*published), is_file});
}

void describe(State& state) {
  const catalog::Description& made = state.attached->published.description();
  const catalog::Catalog& catalog = state.attached->published.catalog();
  CheckpointInfo& info = state.info;
  info.format = "torch_zip";
  info.version = made.version;
  info.format_version = made.format_version;
  info.byteorder = made.big_endian ? "big" : "little";
  info.byteorder_assumed = made.byte_order_assumed;
  info.storage_alignment = made.storage_alignment;
  info.tensors = catalog.size();
  info.tensor_bytes = catalog.tensor_bytes();
  info.storages = catalog.storages().size();
  info.file_bytes = state.file.size();
  info.pickle_bytes = made.pickle_bytes;
  info.catalog = CatalogSource::attached;
  state.stats.strategy = made.strategy;
  state.stats.storages_calculated = made.storages_calculated;
  state.stats.storages_by_directory = made.storages_by_directory;
  state.stats.storages_by_header = made.storages_by_header;
}

// Offsets that somebody else proved, where the options want them compared.
Result<void> verify(State& state) {
  if (*state.options.verify == Verify::chain) return {};
  const Result<const catalog::Catalog*> catalog = state.whole();
  if (!catalog) return tl::unexpected<Error>(catalog.error());
  state.stats.local_headers_verified = (*catalog)->storages().size();
  return verify_storage_headers(state.file, **catalog, state.options.limits);
}

// With state.attached set.
Result<void> map_attached(State& state, const OpenOptions& options, Clock::time_point began) {
  const Clock::time_point before = Clock::now();
  if (Result<void> ok = Opener::map(state, options); !ok) return ok;
  describe(state);
  state.stats.mapping = Clock::now() - before;
  state.stats.total = Clock::now() - began;
  if (options.log)
    options.log("attached: " + std::to_string(state.info.tensors) + " tensors in " +
                std::to_string(state.info.storages) + " storages from a shared catalog, " +
                std::to_string(state.stats.total.count() / 1000) + " us");
  return {};
}

Result<void> parse_alone(State& state, const OpenOptions& options, const std::string& reason) {
  Result<void> opened = Opener(state, options, state.stats).run();
  state.info.catalog_reason = reason;
  if (options.log) options.log(reason);
  return opened;
}

// `refused`: why there was nothing to attach; nullopt if there simply is none yet.
Result<void> parse_and_publish(State& state, const OpenOptions& options,
                               const os::RuntimeDirectory& directory,
                               const std::optional<Error>& refused) {
  if (Result<void> ok = Opener(state, options, state.stats).run(); !ok) return ok;
  CheckpointInfo& info = state.info;
  if (refused) info.catalog_reason = refused->message;
  // What others can use is not replaced by what they could not.
  if (!refused || refused->code != ErrorCode::invalid_argument) {
    const Result<void> published = publish_catalog(state, directory);
    if (published) info.catalog = CatalogSource::published;
    if (!published) info.catalog_reason = published.error().message;
  }
  if (options.log && !info.catalog_reason.empty()) options.log(info.catalog_reason);
  return {};
}

}  // namespace

Result<void> open_with_shared_catalog(State& state, const OpenOptions& options) {
  const Clock::time_point began = Clock::now();
  const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (!directory) return parse_alone(state, options, directory.error().message);
  Result<std::unique_ptr<Attached>> attached =
      check(os::SharedBlock::open(*directory, catalog_name(state.generation)), true, state);
  std::optional<Error> refused;
  if (attached) {
    state.attached = std::move(*attached);
    if (Result<void> ok = map_attached(state, options, began); !ok) return ok;
    Result<void> verified = verify(state);
    if (verified || state.own_if_any() != nullptr) return verified;
    // The parse compares the same, and knows what is wrong with the file if that is to blame.
    refused = std::move(verified.error());
    state.stats = {};
    state.info.catalog = CatalogSource::parsed;
  } else if (attached.error().os_error != ENOENT) {
    refused = std::move(attached.error());
  }
  return parse_and_publish(state, options, *directory, refused);
}

Result<Checkpoint> Checkpoint::attach(const std::filesystem::path& path, int catalog_descriptor,
                                      const OpenOptions& options) {
  const Clock::time_point began = Clock::now();
  const Result<OpenOptions> filled = with_defaults(options);
  if (!filled) return tl::unexpected<Error>(filled.error());
  Result<std::unique_ptr<State>> state = Access::begin_open(path, *filled);
  if (!state) return tl::unexpected<Error>(state.error());
  Result<std::unique_ptr<Attached>> attached =
      check(os::SharedBlock::of_sealed(catalog_descriptor), false, **state);
  if (!attached) return about_file(attached.error(), path);
  (*state)->attached = std::move(*attached);
  if (Result<void> ok = map_attached(**state, *filled, began); !ok)
    return about_file(ok.error(), path);
  if (Result<void> ok = verify(**state); !ok) return about_file(ok.error(), path);
  return Access::finish_open(std::move(*state));
}

}  // namespace weightmap
