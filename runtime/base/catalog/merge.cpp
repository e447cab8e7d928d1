#include "runtime/base/catalog/merge.hpp"

#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::catalog {
namespace {

constexpr std::uint32_t not_added = 0xFFFFFFFF;

bool is_chosen(const MergePart& part, std::size_t tensor) {
  return part.chosen.empty() || part.chosen[tensor];
}

// True if the storage's key and the tensor's name are one text.
bool has_name_of(const StorageEntry& storage, const Entry& entry) noexcept {
  return storage.key.offset == entry.name.offset && storage.key.length == entry.name.length;
}

class Locations {
 public:
  std::size_t number_of(std::string_view location) {
    const auto [at, is_new] = numbers_.try_emplace(location, texts_.size());
    if (is_new) texts_.push_back(location);
    return at->second;
  }
  const std::vector<std::string_view>& texts() const noexcept { return texts_; }

 private:
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, std::size_t> numbers_;
};

// The locations of one part, which are few.
class PartLocations {
 public:
  PartLocations(const Catalog& from, Locations& all) : from_(from), all_(all) {}
  std::size_t number_of(const Entry& entry) {
    if (entry.location >= numbers_.size()) numbers_.resize(entry.location + 1u, unknown);
    std::size_t& number = numbers_[entry.location];
    if (number == unknown) number = all_.number_of(from_.location(entry));
    return number;
  }

 private:
  static constexpr std::size_t unknown = ~std::size_t{0};
  const Catalog& from_;
  Locations& all_;
  std::vector<std::size_t> numbers_;
};

Result<Counts> count(std::span<const MergePart> parts, std::uint32_t most_tensors,
                     Locations& locations) {
  Counts counts;
  for (const MergePart& part : parts) {
    const Catalog& from = *part.catalog;
    std::vector<bool> is_counted(from.storages().size());
    PartLocations numbers(from, locations);
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (!is_chosen(part, i)) continue;
      const Entry& entry = from[i];
      const StorageEntry& storage = from.storages()[entry.storage];
      ++counts.tensors;
      counts.dims += 2 * std::uint64_t{entry.rank};
      counts.string_bytes += entry.name.length;
      if (entry.path.first != Path::is_name) counts.path_parts += from.path_length(entry);
      if (numbers.number_of(entry) >= std::numeric_limits<std::uint16_t>::max())
        return failure(ErrorCode::limit_exceeded, "the tensors name more than 65535 devices");
      if (is_counted[entry.storage]) continue;
      is_counted[entry.storage] = true;
      ++counts.storages;
      if (!has_name_of(storage, entry)) counts.string_bytes += storage.key.length;
    }
  }
  counts.locations = locations.texts().size();
  for (const std::string_view text : locations.texts()) counts.string_bytes += text.size();
  if (counts.tensors > most_tensors)
    return failure(ErrorCode::limit_exceeded, "the files have " + std::to_string(counts.tensors) +
                                                  " tensors, the limit is " +
                                                  std::to_string(most_tensors));
  TRY(check_counts(counts));
  return counts;
}

Path add_path(const Catalog& from, const Entry& entry, CatalogBuilder& builder) {
  if (entry.path.first == Path::is_name) return entry.path;
  const Path added{builder.path_position(), entry.path.length};
  from.visit_path(entry, [&builder](const Catalog::PathText& part) {
    builder.add_path_part(static_cast<std::uint32_t>(part.text.size()), part.is_integer);
  });
  return added;
}

bool add(const MergePart& part, Locations& locations, std::uint32_t& storages,
         CatalogBuilder& builder) {
  const Catalog& from = *part.catalog;
  std::vector<std::uint32_t> numbers(from.storages().size(), not_added);
  PartLocations place(from, locations);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!is_chosen(part, i)) continue;
    const Entry& entry = from[i];
    const StorageEntry& storage = from.storages()[entry.storage];
    const Text name = builder.add_text(from.name(entry));
    std::uint32_t& number = numbers[entry.storage];
    if (number == not_added) {
      const Text key =
          has_name_of(storage, entry) ? name : builder.add_text(from.text(storage.key));
      builder.add_storage(key, part.base + storage.position, storage.nbytes, storage.crc32,
                          part.source);
      number = storages++;
    }
    constexpr unsigned not_copied = Entry::ambiguous;
    if (!builder.add_tensor({name, add_path(from, entry, builder), from.dims(entry),
                             entry.storage_offset, number,
                             static_cast<std::uint16_t>(place.number_of(entry)), entry.dtype,
                             entry.rank, static_cast<std::uint8_t>(entry.flags & ~not_copied)}))
      return false;
  }
  return true;
}

}  // namespace

Result<Catalog> merge(std::span<const MergePart> parts, std::uint32_t most_tensors,
                      std::pmr::memory_resource& memory) {
  Locations locations;
  TRY_ASSIGN(const Counts counts, count(parts, most_tensors, locations));
  CatalogBuilder builder(counts, memory);
  for (const std::string_view text : locations.texts()) builder.add_location(text);
  std::uint32_t storages = 0;
  for (const MergePart& part : parts)
    if (!add(part, locations, storages, builder))
      return failure(ErrorCode::corrupt, "a tensor was proven for its file and is not any more");
  return std::move(builder).finish();
}

}  // namespace weightmap::catalog
