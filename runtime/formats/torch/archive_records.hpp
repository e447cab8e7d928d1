// Reads the small records of a torch archive: version, byte order, alignment, reserved storages.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

inline constexpr std::string_view pickle_record = "data.pkl";
inline constexpr std::string_view storage_folder = zip::StorageNumbers::folder;

struct ArchiveRecords {
  std::uint64_t version;                      // `.data/version` or `version`
  std::optional<std::string> format_version;  // `.format_version`
  std::uint64_t storage_alignment;            // `.storage_alignment`, or 64
  bool big_endian;                            // `byteorder`, or the option
  bool byte_order_assumed;
  std::optional<ReservedStorages> reserved;  // see marks_record

  // True if the byte order of the elements differs from this machine's.
  bool is_foreign() const noexcept {
    return big_endian != (std::endian::native == std::endian::big);
  }
};

// Fails with corrupt for a record that says something that no writer writes, and for one that only
// a reader that ignores the case of names would find.
Result<ArchiveRecords> read_archive_records(const zip::Directory& directory,
                                            bytes::ReadCache& cache, ByteOrder missing_byte_order);

// Fails with corrupt if `record`, the marks_record, does not have one status byte for the file and
// at most one for each other record.
Result<void> check_marks(const zip::Directory& directory, const zip::Record& record);

// The torch function that wrote an archive.
enum class ArchiveKind : std::uint8_t {
  saved,     // torch.save
  script,    // torch.jit.save, recognised by constants.pkl as torch does
  exported,  // torch.export.save: no data.pkl, but a record archive_format
};

// Fails with not_a_checkpoint if there is neither data.pkl nor archive_format.
Result<ArchiveKind> kind_of(const zip::Directory& directory);

// Prefixes `error`, which came from reading or running data.pkl, with the name of that record.
[[gnu::cold]] tl::unexpected<Error> in_pickle(Error error);

// The range from the local header of data.pkl to the end of the local header of the first storage.
// In a file that torch wrote, this range and the tail are all that an open needs, so one read
// suffices. nullopt if the records are in another order or have something large between them.
struct Head {
  std::uint64_t offset;
  std::uint64_t length;
};
std::optional<Head> head_of(const zip::Directory& directory);

}  // namespace weightmap::torch
