// The small records of a torch archive: what they are called and what they say.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/directory.hpp"
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
  std::optional<ReservedStorages> reserved;  // as marks_record says

  // Whether elements are in the other byte order than this machine's.
  bool is_foreign() const noexcept {
    return big_endian != (std::endian::native == std::endian::big);
  }
};

// Fails with corrupt for a record that says something that no writer writes, and for one that only
// a reader that ignores the case of names would find.
Result<ArchiveRecords> read_archive_records(const zip::Directory& directory,
                                            bytes::ReadCache& cache, ByteOrder missing_byte_order);

// Fails with corrupt if marks_record, which `record` is, does not have a letter for the file and
// one for at most each other record.
Result<void> check_marks(const zip::Directory& directory, const zip::Record& record);

// Which of torch's writers made an archive.
enum class ArchiveKind : std::uint8_t {
  saved,     // torch.save
  script,    // torch.jit.save: it has constants.pkl, which is how torch tells
  exported,  // torch.export.save: no data.pkl, but a record archive_format
};

// Fails with not_a_checkpoint if there is neither data.pkl nor archive_format.
Result<ArchiveKind> kind_of(const zip::Directory& directory);

// `error`, which running or reading data.pkl gave, with the name of that record in front.
[[gnu::cold]] tl::unexpected<Error> in_pickle(Error error);

// From the local header of data.pkl to behind the local header of the first storage: in a file that
// torch wrote this holds all that an open needs to read besides the tail, so one read gets it.
// nullopt if the records lie in another order or have something large between them.
struct Head {
  std::uint64_t offset;
  std::uint64_t length;
};
std::optional<Head> head_of(const zip::Directory& directory);

}  // namespace weightmap::torch
