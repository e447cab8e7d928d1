#include "runtime/shared_catalog/file_list.hpp"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/sets/file_name.hpp"
#include "runtime/sets/shard_index.hpp"

namespace weightmap::catalog {
namespace {

constexpr std::uint64_t longest_name = 4096;

struct Record {
  Generation generation;
  std::uint64_t base;
  std::uint64_t name_bytes;
};
static_assert(std::has_unique_object_representations_v<Record>);  // no padding

tl::unexpected<Error> refuse_list(const std::string& why) {
  return failure(ErrorCode::corrupt, "the shared catalog has a list of files that " + why);
}

}  // namespace

std::uint64_t file_list_bytes(std::span<const ListedFile> files) noexcept {
  std::uint64_t bytes = files.size() * sizeof(Record);
  for (const ListedFile& file : files) bytes += file.name.size();
  return bytes;
}

Result<void> check_file_list(std::span<const ListedFile> files) {
  if (files.size() > sets::most_files || file_list_bytes(files) > longest_file_list)
    return refuse_list("is too long");
  for (const ListedFile& file : files)
    if (file.name.size() > longest_name || !sets::stays_below(file.name))
      return refuse_list("names " + bytes::quote(file.name) +
                         ", which does not lie beside the first");
  return {};
}

void write_file_list(std::span<const ListedFile> files, std::byte* to) noexcept {
  for (const ListedFile& file : files) {
    const Record record{file.generation, file.base, file.name.size()};
    std::memcpy(to, &record, sizeof record);
    to += sizeof record;
  }
  for (const ListedFile& file : files) {
    std::memcpy(to, file.name.data(), file.name.size());
    to += file.name.size();
  }
}

Result<std::vector<ListedFile>> read_file_list(std::span<const std::byte> list, std::uint64_t count,
                                               std::uint64_t first_bytes) {
  std::vector<ListedFile> files;
  if (count > list.size() / sizeof(Record)) return refuse_list("is truncated");
  std::span<const std::byte> names = list.subspan(count * sizeof(Record));
  files.reserve(count);
  for (std::uint64_t end = first_bytes; files.size() < count;) {
    Record record;
    std::memcpy(&record, list.data() + files.size() * sizeof record, sizeof record);
    if (record.base < end || !bytes::checked_add(record.base, record.generation.size, &end) ||
        end > std::numeric_limits<std::int64_t>::max())
      return refuse_list("has file " + std::to_string(files.size() + 1) + " where it cannot be");
    if (record.name_bytes > names.size()) return refuse_list("has a name that is truncated");
    files.push_back({std::string(reinterpret_cast<const char*>(names.data()), record.name_bytes),
                     record.generation, record.base});
    names = names.subspan(record.name_bytes);
  }
  if (!names.empty()) return refuse_list("has more than its names");
  TRY(check_file_list(files));
  return files;
}

}  // namespace weightmap::catalog
