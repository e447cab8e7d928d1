#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/parsing.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;

// An index that is read again may have been rewritten since the open.
Result<void> check_names(const std::vector<std::string>& names, const Sources& sources) {
  const std::filesystem::path folder = sources.front().info.path.parent_path();
  bool are_same = sources.size() == names.size() + 1;
  for (std::size_t i = 0; are_same && i < names.size(); ++i)
    are_same = sources[i + 1].info.path == folder / names[i];
  if (are_same) return {};
  return failure(ErrorCode::corrupt, "the index names other files than those that were opened");
}

// `parsed`: what the files say now.
Result<void> check_storages(const catalog::Catalog& used, const catalog::Catalog& parsed,
                            const Sources& sources) {
  if (used.storages().size() != parsed.storages().size())
    return failure(ErrorCode::corrupt,
                   "has " + bytes::counted(parsed.storages().size(), "storage") +
                       ", the catalog has " + std::to_string(used.storages().size()));
  for (std::size_t i = 0; i < used.storages().size(); ++i) {
    const catalog::StorageEntry& one = used.storages()[i];
    const catalog::StorageEntry& other = parsed.storages()[i];
    if (one.position == other.position && one.nbytes == other.nbytes && one.source == other.source)
      continue;
    return tl::unexpected<Error>(sources.about_position(
        {ErrorCode::corrupt,
         "storage " + bytes::quote(parsed.text(other.key)) + " of " +
             bytes::counted(other.nbytes, "byte") + " does not lie where the catalog has it",
         other.position,
         {}}));
  }
  return {};
}

// Returns true if the whole header was read and proven, by now.
bool is_proven(const State& state) noexcept {
  const Format format = state.info.format;
  return format == Format::dcp || (is_header_and_elements(format) && !state.is_set());
}

// Reads the metadata of the files afresh and compares the place of every storage with what stands
// before it in its file.
Result<void> compare_headers(const State& state) {
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.placed());
  if (is_proven(state)) return {};
  OpenOptions options = state.options;
  options.verify = Verify::headers;
  OpenStats not_of_the_open;
  Parsing parsing(state.sources, options, not_of_the_open);
  TRY(parsing.identify(state.leading_files));
  const FormatRow* const row = parsing.row();
  // The catalog has places in the file, which a member is only a part of.
  if (row != nullptr && row->parse != nullptr && !state.sources.front().member)
    return row->verify_headers == nullptr
               ? Result<void>()
               : row->verify_headers(parsing.first(), *catalog, options.limits);
  TRY(parsing.read_first());
  if (parsing.named() != nullptr) TRY(check_names(parsing.named()->files, state.sources));
  TRY_ASSIGN(const std::unique_ptr<ParsedFiles> parsed, std::move(parsing).finish());
  return check_storages(*catalog, parsed->content.catalog, state.sources);
}

}  // namespace

Result<void> verify_headers(const Checkpoint& checkpoint) {
  const State& state = Checkpoint::Access::state(checkpoint);
  return about_shown(compare_headers(state), state.shown_name());
}

}  // namespace weightmap
