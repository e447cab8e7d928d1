// Reads any bytes as a zip archive: the directory, and every record of it, is read or refused.
#include <memory_resource>

#include "fuzz/look.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/target.hpp"
#include "fuzz/zip_mutator.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/record_bytes.hpp"

namespace {

using namespace weightmap;

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

void check_record(const zip::Directory& directory, const zip::Record& record,
                  bytes::ReadCache& cache) {
  const std::string_view name = directory.short_name(record);
  fuzz::look_at(std::as_bytes(std::span(record.full_name())));
  fuzz::require(directory.find_full(record.full_name()) == &record,
                "a record is not found by its whole name");
  if (record.full_name() != name)
    fuzz::require(directory.find(name) == &record, "a record is not found by its name");
  (void)directory.find_in_other_case(name);
  fuzz::require(directory.limit_of(record) > record.header_offset, "a record has no room");
  if (const auto content = zip::read_record(directory, record, cache, most_bytes)) {
    fuzz::require(content->bytes.size() == record.size, "a record has another size");
    fuzz::look_at(content->bytes);
  }
}

void check(std::span<const std::byte> input) {
  const bytes::MemorySource source(input);
  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  const Result<zip::Directory> directory = zip::Directory::read(cache, most_bytes);
  if (!directory) return;
  for (const zip::Record& record : directory->records()) check_record(*directory, record, cache);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(weightmap::fuzz::mutate_zip)
