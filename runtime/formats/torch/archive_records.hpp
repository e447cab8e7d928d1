// The small records of a torch archive (version, byte order, alignment, reserved storages), and
// where its storages are.
#pragma once

#include <bit>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// The record that tells which storages of a checkpoint were reserved and which have been filled in
// since. torch ignores it.
//
// It has one status byte for each storage, indexed by the storage's number, and a last one for the
// whole file, which is written last. A process that fills a storage changes its status byte in
// place. So the record's CRC-32 is that of the sealed content, or not computed.
inline constexpr std::string_view marks_record = ".data/weightmap_reserved";

namespace mark {
inline constexpr char saved = '-';     // written when the file was made
inline constexpr char reserved = 'r';  // not written yet
inline constexpr char written = 'w';
inline constexpr char open = 'o';    // the last byte: checksums are not computed
inline constexpr char sealed = 's';  // the last byte: checksums are computed
}  // namespace mark

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

// The storages of an archive's tensors: in their records or, if another program deflated the
// records, in memory.
struct PlacedStorages {
  std::pmr::vector<zip::StorageExtent> extents;  // of the requests, in their order
  // The storages to be inflated; their extents have positions from Input::copies_base on.
  std::vector<format::CompressedStorage> compressed;
};

// Fails as zip::locate_storages() does; with corrupt for sizes that deflate cannot reach, with
// limit_exceeded beyond Limits::copied_bytes and copied_ratio. Allocates nothing for the inflated
// content. `memory` holds the extents and must outlive them.
Result<PlacedStorages> place_storages(const zip::Directory& directory,
                                      std::span<const zip::StorageRequest> requests,
                                      const ArchiveRecords& records, format::Input& input,
                                      const OpenOptions& options, OpenStats& stats,
                                      std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
