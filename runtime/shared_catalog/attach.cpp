#include "runtime/shared_catalog/attach.hpp"

#include <bit>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/checkpoint/open.hpp"
#include "runtime/checkpoint/verify_storages.hpp"
#include "runtime/shared_catalog/attached.hpp"
#include "runtime/shared_catalog/publish_catalog.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;
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
  // Which other names the file has, and whether they are allowed, only its pickle tells.
  if (*state.options.globals == Globals::torch_safe && !made.names_torch_safe_only)
    return refuse("is of a file that names what torch does not allow by default");
  return {};
}

void describe(State& state, const catalog::Published& published) {
  const catalog::Description& made = published.description();
  const catalog::Catalog& catalog = published.catalog();
  CheckpointInfo& info = state.info;
  info.format = made.format;
  info.version = made.version;
  info.format_version = made.format_version;
  info.byteorder = made.big_endian ? "big" : "little";
  info.byteorder_assumed = made.byte_order_assumed;
  info.storage_alignment = made.storage_alignment;
  info.tensors = catalog.size();
  info.tensor_bytes = catalog.tensor_bytes();
  info.storages = catalog.storages().size();
  info.file_bytes = state.sources.bytes();
  info.pickle_bytes = made.pickle_bytes;
  info.tensors_not_indexed = made.tensors_not_indexed;
  info.names_torch_safe_only = made.names_torch_safe_only;
  info.catalog = CatalogSource::attached;
  state.stats.strategy = made.strategy;
  state.stats.storages_calculated = made.storages_calculated;
  state.stats.storages_by_directory = made.storages_by_directory;
  state.stats.storages_by_header = made.storages_by_header;
}

// An index leads to the files that the catalog lists, which it names, without being read.
Result<void> add_listed_files(const catalog::Description& made, State& state) {
  if (!made.has_index || state.sources.size() > 1) return {};
  std::vector<std::string> names;
  for (const catalog::ListedFile& other : made.others) names.push_back(other.name);
  state.has_index = true;
  return add_named_files(state.sources, names, "index", state.options);
}

// What add_listed_files() did.
void remove_listed_files(State& state) {
  if (!state.has_index) return;
  state.mapping = {};
  state.sources.keep_first();
  state.has_index = false;
}

bool is_same(const SourceFile& source, const Generation& generation, std::uint64_t base) noexcept {
  return source.info.generation == generation && source.file.size() == generation.size &&
         source.base() == base;
}

// Of every file there is. Adds those that an index names.
Result<void> check_is_about(const catalog::Description& made, State& state) {
  const Sources& sources = state.sources;
  if (!is_same(sources.front(), made.generation, 0))
    return refuse("is about another file, or about this one as it was before it changed");
  if (Result<void> added = add_listed_files(made, state); !added)
    return refuse("lists a file that cannot be opened: " + to_string(added.error()));
  if (sources.size() != made.others.size() + 1)
    return refuse("is about " + bytes::counted(made.others.size() + 1, "file") +
                  ", and there are " + std::to_string(sources.size()));
  for (std::size_t i = 1; i < sources.size(); ++i)
    if (!is_same(sources[i], made.others[i - 1].generation, made.others[i - 1].base))
      return refuse("is about another file than " + sources[i].shown_name +
                    ", or about it as it was before it changed");
  return {};
}

// Gives the checkpoint the catalog in `block`, if it is about the checkpoint's files.
Result<void> take_over(Result<os::SharedBlock> block, bool is_file, State& state) {
  if (!block) return tl::unexpected<Error>(block.error());
  TRY_ASSIGN(catalog::Published published, catalog::Published::read(block->bytes()));
  if (Result<void> about = check_is_about(published.description(), state); !about) {
    // Under this name it is of no use to others either.
    if (is_file) about.error().code = ErrorCode::corrupt;
    return about;
  }
  TRY(check_is_for(published.description(), state));
  describe(state, published);
  state.catalogs.set_foreign(
      std::make_unique<Attached>(state, std::move(*block), std::move(published), is_file));
  return {};
}

// Offsets that somebody else proved, where the options want them compared.
Result<void> verify(State& state) {
  if (*state.options.verify == Verify::chain) return {};
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.catalogs.whole());
  if (state.info.format == "torch_zip")
    state.stats.local_headers_verified = catalog->storages().size();
  return verify_headers(state);
}

// With a foreign catalog set.
Result<void> map_attached(State& state, Clock::time_point began) {
  TRY(map(state));
  state.stats.total = Clock::now() - began;
  if (state.options.log)
    state.options.log(state.shown_name() +
                      ": attached: " + bytes::counted(state.info.tensors, "tensor") + " in " +
                      bytes::counted(state.info.storages, "storage") + " from a shared catalog, " +
                      std::to_string(state.stats.total.count() / 1000) + " us");
  return {};
}

Result<void> parse_alone(State& state, const std::string& reason) {
  Result<void> opened = parse_and_map(state);
  state.info.catalog_reason = reason;
  if (state.options.log) state.options.log(state.shown_name() + ": " + reason);
  return opened;
}

// `refused`: why there was nothing to attach; nullopt if there simply is none yet.
Result<void> parse_and_publish(State& state, const os::RuntimeDirectory& directory,
                               const std::optional<Error>& refused) {
  TRY(parse_and_map(state));
  CheckpointInfo& info = state.info;
  if (refused) info.catalog_reason = refused->message;
  // What others can use is not replaced by what they could not.
  if (!refused || refused->code != ErrorCode::invalid_argument) {
    const Result<void> published = publish_catalog(state, directory);
    if (published) info.catalog = CatalogSource::published;
    if (!published) info.catalog_reason = published.error().message;
  }
  if (state.options.log && !info.catalog_reason.empty())
    state.options.log(state.shown_name() + ": " + info.catalog_reason);
  return {};
}

}  // namespace

Result<void> open_with_shared_catalog(State& state) {
  const Clock::time_point began = Clock::now();
  Result<void> attached = take_over(os::SharedBlock::find(catalog_name(state)), true, state);
  std::optional<Error> refused;
  if (attached) {
    TRY(map_attached(state, began));
    Result<void> verified = verify(state);
    if (verified || state.catalogs.own_if_any() != nullptr) return verified;
    // The parse compares the same, and knows what is wrong with the file if that is to blame.
    refused = std::move(verified.error());
    state.stats = {};
    state.info.catalog = CatalogSource::parsed;
  } else if (attached.error().os_error != ENOENT) {
    refused = std::move(attached.error());
  }
  remove_listed_files(state);
  const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (!directory) return parse_alone(state, directory.error().message);
  return parse_and_publish(state, *directory, refused);
}

Result<void> open_with_sealed_catalog(State& state, int descriptor) {
  const Clock::time_point began = Clock::now();
  TRY(take_over(os::SharedBlock::of_sealed(descriptor), false, state));
  TRY(map_attached(state, began));
  return verify(state);
}

}  // namespace weightmap
