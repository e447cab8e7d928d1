
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "mmap/memory/huge_pages.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/catalog/merge.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/formats/dcp/saved_offsets.hpp"
#include "runtime/formats/format/members.hpp"

namespace weightmap {
namespace {

using catalog::Catalog;
using catalog::Entry;
using Clock = std::chrono::steady_clock;

struct Shard {
  const SourceFile* source;
  std::uint32_t number;                           // of the source
  std::uint64_t first_bytes = bytes::first_read;  // see format::Input
  std::unique_ptr<mmap::HugePageResource> memory = std::make_unique<mmap::HugePageResource>();
  std::optional<format::Parsed> parsed;
  OpenStats stats;
};

using Shards = std::vector<std::unique_ptr<Shard>>;

Result<format::Parsed> parse(Shard& shard, const OpenOptions& options) {
  std::optional<bytes::Part> member;
  format::Input input(shard.source->content(member), 0, shard.source->file.size(), *shard.memory);
  input.first_bytes = shard.first_bytes;
  TRY_ASSIGN(const FormatRow* row,
             format_of(input, shard.source->content_name(), options.limits, shard.stats));
  if (row->parse == nullptr)
    return failure(ErrorCode::invalid_argument,
                   std::string(row->sentence) + ", which is opened alone: it names its files");
  TRY_ASSIGN(format::Parsed parsed, parse_file(row, input, options, shard.stats, *shard.memory));
  if (!parsed.compressed.empty())
    return failure(ErrorCode::unsupported,
                   "has compressed storages, which a shard may not have; open it alone, or "
                   "convert it first");
  if (parsed.facts.reserved && !parsed.facts.reserved->is_sealed)
    return failure(ErrorCode::unsupported,
                   "has reserved storages that are not filled in, which a shard may not have; open "
                   "it alone");
  if (shard.source->member) format::place_in_file(parsed, *shard.source->member);
  return parsed;
}

// Reads no more of each file at first than the header of the tensors that the index has in it.
void limit_first_reads(const sets::ShardIndex& index, Shards& shards) {
  constexpr std::uint64_t usual_bytes = 96;  // of a tensor, without its name
  std::vector<std::uint64_t> headers(shards.size(), 4096);
  for (const sets::ShardIndex::Item& item : index.items)
    headers[item.file] += item.tensor.size() + usual_bytes;
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i]->first_bytes = std::min(bytes::first_read, headers[i]);
}

// Returns the failure of the first file, in order, that fails.
Result<void> parse_all(Shards& shards, const OpenOptions& options) {
  return parallel_for(shards.size(), [&](std::size_t number) -> Result<void> {
    Shard& shard = *shards[number];
    Result<format::Parsed> parsed = parse(shard, options);
    if (!parsed)
      return tl::unexpected<Error>(shard.source->about_content(std::move(parsed.error())));
    shard.parsed.emplace(std::move(*parsed));
    return {};
  });
}

// Names that are in the files but not in the catalog, since their tensors cannot be viewed.
class Names {
 public:
  // Returns false if the name exists.
  bool insert(std::string_view name) {
    if (!known_.insert(name).second) return false;
    names_.push_back(name);
    return true;
  }
  bool contains(std::string_view name) const { return known_.contains(name); }
  auto begin() const noexcept { return names_.begin(); }
  auto end() const noexcept { return names_.end(); }

 private:
  std::unordered_set<std::string_view> known_;
  std::vector<std::string_view> names_;  // in the order of insertion
};

tl::unexpected<Error> refuse(const sets::ShardIndex& index, const sets::ShardIndex::Item& item,
                             const std::string& why) {
  return failure(ErrorCode::corrupt,
                 "the index has tensor " + bytes::quote(item.tensor) + " in " +
                     bytes::quote(index.files[item.file]) + why,
                 item.position);
}

// Chooses the tensors of each part that the index names, and collects the unlisted ones.
Result<void> choose(const sets::ShardIndex& index, const Shards& shards,
                    std::vector<catalog::MergePart>& parts, Names& unlisted) {
  std::vector<Names> of_shards(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const std::string& name : shards[i]->parsed->facts.unsupported) of_shards[i].insert(name);
  for (catalog::MergePart& part : parts) part.chosen.resize(part.catalog->size());
  for (const sets::ShardIndex::Item& item : index.items) {
    catalog::MergePart& part = parts[item.file];
    const std::uint32_t found = part.catalog->find(item.tensor);
    if (found == Catalog::none) {
      if (!of_shards[item.file].contains(item.tensor))
        return refuse(index, item, ", which has no such tensor");
      if (!unlisted.insert(item.tensor)) return refuse(index, item, " twice");
      continue;
    }
    if (((*part.catalog)[found].flags & Entry::ambiguous) != 0)
      return refuse(index, item, ", which has more than one of this name");
    if (part.chosen[found]) return refuse(index, item, " twice");
    part.chosen[found] = true;
  }
  return {};
}

// Collects all tensors, without an index.
Result<void> collect(const Shards& shards, Names& unlisted) {
  for (const auto& shard : shards)
    for (const std::string& name : shard->parsed->facts.unsupported)
      if (!unlisted.insert(name))
        return tl::unexpected<Error>(
            shard->source->about({ErrorCode::corrupt,
                                  "tensor " + bytes::quote(name) + " is in another file, too",
                                  Error::no_offset,
                                  {}}));
  return {};
}

// Fails if a name is in the catalog, too.
Result<void> check_unlisted(const Catalog& catalog, const Names& unlisted) {
  for (const std::string_view name : unlisted)
    if (catalog.find(name) != Catalog::none)
      return failure(ErrorCode::corrupt,
                     "tensor " + bytes::quote(name) + " is there twice, in different files");
  return {};
}

[[gnu::cold]] tl::unexpected<Error> refuse_repeated(const Catalog& catalog,
                                                    const Sources& sources) {
  const auto first = std::ranges::find_if(
      catalog.entries(), [](const Entry& entry) { return (entry.flags & Entry::ambiguous) != 0; });
  const auto second = std::find_if(first + 1, catalog.entries().end(), [&](const Entry& entry) {
    return catalog.name(entry) == catalog.name(*first);
  });
  const auto file_of = [&](const Entry& entry) {
    return sources[catalog.storages()[entry.storage].source].shown_name;
  };
  const std::string files = first->storage == second->storage || file_of(*first) == file_of(*second)
                                ? file_of(*first)
                                : file_of(*first) + " and in " + file_of(*second);
  return failure(ErrorCode::corrupt,
                 "tensor " + bytes::quote(catalog.name(*first)) + " is there twice, in " + files);
}

bool has_repeated_names(const Catalog& catalog) {
  return std::ranges::any_of(
      catalog.entries(), [](const Entry& entry) { return (entry.flags & Entry::ambiguous) != 0; });
}

void add(const OpenStats& part, OpenStats& all) {
  all.strategy = std::max(all.strategy, part.strategy);
  all.storages_calculated += part.storages_calculated;
  all.storages_by_directory += part.storages_by_directory;
  all.storages_by_header += part.storages_by_header;
  all.local_headers_read += part.local_headers_read;
  all.local_headers_verified += part.local_headers_verified;
  all.cache_hits += part.cache_hits;
  all.reads += part.reads;
  all.bytes_read += part.bytes_read;
  all.verify_reads += part.verify_reads;
  all.verify_bytes_read += part.verify_bytes_read;
}

// Adds those whose parts were all chosen. `first` is the part's first tensor in the whole.
void add_composed(const format::Parsed& parsed, const catalog::MergePart& part, std::size_t first,
                  std::vector<ComposedTensor>& all) {
  if (parsed.composed.empty()) return;
  std::vector<std::size_t> chosen_before(part.catalog->size() + 1);
  for (std::size_t i = 0; i < part.catalog->size(); ++i)
    chosen_before[i + 1] = chosen_before[i] + (part.chosen.empty() || part.chosen[i] ? 1 : 0);
  for (const ComposedTensor& composed : parsed.composed) {
    const std::size_t before = chosen_before[composed.first_part];
    if (chosen_before[composed.first_part + composed.part_count] - before != composed.part_count)
      continue;
    all.push_back(composed);
    all.back().first_part = first + before;
  }
}

// Describes the whole by its files.
void describe(const Shards& shards, const std::vector<catalog::MergePart>& parts,
              const Names& unlisted, format::Parsed& whole) {
  CheckpointInfo& facts = whole.facts;
  facts = shards.front()->parsed->facts;
  facts.pickle_bytes = 0;
  facts.duplicate_keys = 0;
  facts.unread_bytes = 0;
  facts.unsupported.assign(unlisted.begin(), unlisted.end());
  facts.reserved.reset();
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const CheckpointInfo& shard = shards[i]->parsed->facts;
    if (shard.format != facts.format) facts.format = Format::mixed;
    if (shard.byteorder != facts.byteorder) facts.byteorder = "mixed";
    facts.byteorder_assumed |= shard.byteorder_assumed;
    facts.storage_alignment = std::min(facts.storage_alignment, shard.storage_alignment);
    facts.pickle_bytes += shard.pickle_bytes;
    facts.duplicate_keys += shard.duplicate_keys;
    facts.unread_bytes += shard.unread_bytes;
    facts.names_torch_safe_only &= shard.names_torch_safe_only;
    const std::vector<bool>& chosen = parts[i].chosen;
    const auto taken = chosen.empty() ? parts[i].catalog->size()
                                      : static_cast<std::size_t>(std::ranges::count(chosen, true));
    facts.tensors_not_indexed += parts[i].catalog->size() - taken;
    add_composed(*shards[i]->parsed, parts[i], tensors, whole.composed);
    tensors += taken;
  }
}

tl::unexpected<Error> refuse(const Shard& shard, std::string why) {
  return tl::unexpected<Error>(
      shard.source->about({ErrorCode::corrupt, std::move(why), Error::no_offset, {}}));
}

// Checks the number of files that a split states. The files may come in any order.
Result<void> check_split(const Shards& shards) {
  const auto says_so = [](const auto& shard) { return shard->parsed->split.has_value(); };
  const auto first = std::ranges::find_if(shards, says_so);
  if (first == shards.end()) return {};
  const format::Split& wanted = *(*first)->parsed->split;
  std::uint64_t tensors = 0;
  std::vector<bool> is_there(shards.size());
  for (const auto& shard : shards) {
    const std::optional<format::Split>& split = shard->parsed->split;
    if (!split)
      return refuse(*shard, "does not say that it is a part of a split, as other files of it do");
    const std::string part = "says that it is " + std::to_string(split->number + 1) + " of " +
                             std::to_string(split->count) + " files with " +
                             bytes::counted(split->tensors, "tensor");
    if (split->count != shards.size())
      return refuse(*shard, part + ", and there are " + bytes::counted(shards.size(), "file"));
    if (split->tensors != wanted.tensors)
      return refuse(*shard, part + "; " + (*first)->source->shown_name + " says " +
                                std::to_string(wanted.tensors));
    if (is_there[split->number]) return refuse(*shard, part + ", as another file does");
    is_there[split->number] = true;
    tensors += shard->parsed->catalog.size();
  }
  if (tensors == wanted.tensors) return {};
  return failure(ErrorCode::corrupt, "the " + bytes::counted(shards.size(), "file") +
                                         " of a split say that they have " +
                                         bytes::counted(wanted.tensors, "tensor") + ", and have " +
                                         std::to_string(tensors));
}

// True for files of a job's ranks, each of which has parts of the tensors.
bool are_saved_in_parts(const Shards& shards) {
  return std::ranges::all_of(
      shards, [](const auto& shard) { return dcp::has_saved_offsets(*shard->parsed); });
}

Result<void> join(const Shards& shards, const OpenOptions& options,
                  std::pmr::memory_resource& memory, format::Parsed& whole) {
  std::vector<dcp::SavedShard> parts;
  for (const auto& shard : shards)
    parts.push_back(
        {&*shard->parsed, shard->source->shown_name, shard->source->base(), shard->number});
  return dcp::join_shards(parts, options, memory, whole);
}

// Takes the tree of a split's first file, with its memory.
bool take_tree(const Shards& shards, format::Parsed& whole) {
  for (const auto& shard : shards) {
    if (!shard->parsed->split || shard->parsed->split->number != 0) continue;
    whole.tree = std::move(shard->parsed->tree);
    whole.tree_memory = std::move(shard->memory);
    return true;
  }
  return false;
}

}  // namespace

Result<format::Parsed> parse_shards(const Sources& sources, std::size_t first,
                                    const sets::ShardIndex* index, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory) {
  const Clock::time_point began = Clock::now();
  Shards shards;
  for (std::size_t i = first; i < sources.size(); ++i) {
    if (sources[i].is_copy()) continue;
    shards.push_back(std::make_unique<Shard>());
    shards.back()->source = &sources[i];
    shards.back()->number = static_cast<std::uint32_t>(i);
  }
  if (index != nullptr) limit_first_reads(*index, shards);
  TRY(parse_all(shards, options));
  const Clock::time_point were_parsed = Clock::now();
  std::vector<catalog::MergePart> parts;
  for (const auto& shard : shards) {
    parts.push_back({&shard->parsed->catalog, shard->source->base(), shard->number});
    add(shard->stats, stats);
  }
  Names unlisted;
  if (index != nullptr) {
    TRY(choose(*index, shards, parts, unlisted));
  } else {
    TRY(check_split(shards));
    TRY(collect(shards, unlisted));
  }
  format::Parsed whole(memory);
  if (index == nullptr && are_saved_in_parts(shards)) {
    TRY(join(shards, options, memory, whole));
  } else {
    for (const auto& shard : shards)
      if (Result<void> is_whole = dcp::check_has_no_parts(*shard->parsed, options, memory);
          !is_whole)
        return tl::unexpected<Error>(shard->source->about(std::move(is_whole.error())));
    TRY_ASSIGN(whole.catalog, catalog::merge(parts, options.limits.tensors, memory));
  }
  if (has_repeated_names(whole.catalog)) return refuse_repeated(whole.catalog, sources);
  TRY(check_unlisted(whole.catalog, unlisted));
  describe(shards, parts, unlisted, whole);
  if (index != nullptr || !take_tree(shards, whole)) {
    TRY_ASSIGN(whole.tree, value::empty_dict(memory));
  }
  stats.pickle += were_parsed - began;
  stats.catalog += Clock::now() - were_parsed;
  return whole;
}

}  // namespace weightmap
