#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/formats/dcp/parse_dcp.hpp"
#include "runtime/formats/dcp/saved_offsets.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/formats/sets/shard_index.hpp"

namespace weightmap {
namespace {

std::string names_it(std::string_view kind, const SourceFile& first) {
  return "; the " + std::string(kind) + " " + first.shown_name + " names it";
}

Result<std::shared_ptr<sets::ShardIndex>> read_index(const FirstFiles& first) {
  format::Input& input = first.inputs.front();
  const std::uint64_t size = input.file->size();
  const std::uint64_t most = std::min(sets::longest_index, first.options.limits.pickle_bytes);
  if (size > most)
    return failure(ErrorCode::limit_exceeded, "the index of shards of " + std::to_string(size) +
                                                  " bytes is longer than the limit of " +
                                                  std::to_string(most));
  TRY_ASSIGN(const std::span<const std::byte> text, input.cache->bytes(0, size));
  auto index = std::make_shared<sets::ShardIndex>(
      std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
  TRY(sets::read_shard_index(*index, first.options.limits, first.memory));
  return index;
}

std::vector<dcp::DataFile> data_files(const Sources& sources, std::size_t metadata_files) {
  std::vector<dcp::DataFile> files;
  for (std::size_t i = metadata_files; i < sources.size(); ++i)
    files.push_back({&sources[i].file, sources[i].shown_name, sources[i].base(),
                     static_cast<std::uint32_t>(i)});
  return files;
}

// The names of all files of a split, by that of one of them and what it says of itself.
Result<std::vector<std::string>> names_of_split(const std::filesystem::path& path,
                                                const format::Split& split) {
  constexpr std::string_view extension = ".gguf";
  const std::string file = path.filename();
  const std::string part =
      std::to_string(split.number + 1) + " of " + std::to_string(split.count) + " files";
  if (file.empty())
    return failure(ErrorCode::invalid_argument,
                   "says that it is " + part + "; it is opened by its path, beside which they lie");
  const std::optional<sets::ShardName> name =
      file.ends_with(extension) ? sets::shard_name(file, extension) : std::nullopt;
  const sets::ShardName wanted{name ? name->stem : "<prefix>", split.number + 1, split.count};
  if (!name || name->number != wanted.number || name->count != wanted.count)
    return failure(ErrorCode::corrupt, "says that it is " + part + ", and is not called " +
                                           bytes::quote(sets::to_string(wanted, extension)) +
                                           ", by which the others would be found");
  std::vector<std::string> names;
  for (std::uint32_t number = 1; number <= split.count; ++number)
    names.push_back(sets::to_string({name->stem, number, split.count}, extension));
  return names;
}

}  // namespace

Result<std::optional<NamedFiles>> name_shards(const FirstFiles& first) {
  const SourceFile& file = first.sources.front();
  TRY_ASSIGN(const std::shared_ptr<sets::ShardIndex> index, read_index(first));
  if (file.info.path.empty())
    return failure(ErrorCode::invalid_argument,
                   "is an index of shards; it is opened by its path, beside which they lie");
  return NamedFiles{
      .files = index->files,
      .why = names_it("index", file),
      .parse = [index](const Sources& sources, const OpenOptions& options, OpenStats& stats,
                       std::pmr::memory_resource& memory) -> Result<format::Parsed> {
        TRY_ASSIGN(format::Parsed parsed,
                   parse_shards(sources, 1, index.get(), options, stats, memory));
        parsed.tree = std::move(index->metadata);
        return parsed;
      }};
}

Result<std::optional<NamedFiles>> name_data_files(const FirstFiles& first) {
  const std::size_t count = first.inputs.size();
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < count; ++i) names.emplace_back(first.sources[i].shown_name);
  const SourceFile& file = first.sources.front();
  const auto is_there = [&](const std::string& name) {
    std::error_code unknown;
    return file.remote || std::filesystem::exists(file.info.path.parent_path() / name, unknown);
  };
  TRY_ASSIGN(dcp::Metadata read,
             dcp::read_metadata(first.inputs, names, first.options, first.memory, is_there));
  for (format::Input& input : first.inputs) input.release(first.stats);
  const auto metadata = std::make_shared<dcp::Metadata>(std::move(read));
  return NamedFiles{
      .files = metadata->files,
      .why = names_it("metadata", file),
      .parse = [metadata, count](const Sources& sources, const OpenOptions& options,
                                 OpenStats& stats, std::pmr::memory_resource& memory) {
        // Of a remote folder all items take few requests together.
        const dcp::Proof proof =
            sources.front().remote ? dcp::Proof::at_open : dcp::proof_of(options);
        return dcp::parse(metadata, data_files(sources, count), proof, options, stats, memory);
      }};
}

Result<std::optional<NamedFiles>> name_split(const FirstFiles& first) {
  const std::optional<format::Split>& split = first.content->split;
  if (!split) return std::optional<NamedFiles>();
  const SourceFile& file = first.sources.front();
  TRY_ASSIGN(std::vector<std::string> names, names_of_split(file.info.path, *split));
  return NamedFiles{.files = std::move(names),
                    .why = "; " + file.shown_name + " says that it is one of " +
                           std::to_string(split->count) + " files",
                    .includes_first = true,
                    .parse = [](const Sources& sources, const OpenOptions& options,
                                OpenStats& stats, std::pmr::memory_resource& memory) {
                      return parse_shards(sources, 0, nullptr, options, stats, memory);
                    }};
}

Result<std::optional<NamedFiles>> name_ranks(const FirstFiles& first) {
  const SourceFile& file = first.sources.front();
  if (!dcp::has_saved_offsets(*first.content)) return std::optional<NamedFiles>();
  TRY(dcp::check_has_no_parts(*first.content, first.options, first.memory));
  const std::optional<std::string> other =
      file.remote ? std::nullopt : sets::file_of_another_rank(file.info.path);
  if (other)
    return failure(ErrorCode::invalid_argument,
                   "is the file of one rank, which may have no more than parts of its tensors: " +
                       bytes::quote(*other) + " beside it is that of another; open the folder");
  return std::optional<NamedFiles>();
}

}  // namespace weightmap
