// The zip archive beneath a checkpoint: its records, their places and their bytes.
//
// For tools and for people who keep their own records in a torch archive. Knows nothing of tensors.
// Reads with pread, so a truncated file is an error here, never a signal. Const members may be
// called from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class ArchiveReader;
template <>
inline constexpr bool lends_from_itself<ArchiveReader> = true;

class WEIGHTMAP_API ArchiveReader {
 public:
  // Lowest and highest content of the `version` record that is understood (torch's own bounds).
  static constexpr std::uint64_t min_version = 1;
  static constexpr std::uint64_t max_version = 10;

  struct RecordInfo {
    std::string_view name;        // without the archive's top folder: "data.pkl", "data/0"
    std::uint64_t header_offset;  // absolute offset of the local file header
    std::uint64_t stored_bytes;   // bytes in the file
    std::uint64_t size;           // bytes after inflating; == stored_bytes if not deflated
    std::uint32_t crc32;          // 0 with size > 0: the writer did not compute it
    bool deflated;
  };

  // Reads and proves the central directory. The file stays open until the reader is destroyed.
  static Result<ArchiveReader> open(const std::filesystem::path& path,
                                    const OpenOptions& options = {});

  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) noexcept;
  ~ArchiveReader();

  // The top folder that holds every record, without the slash: "archive", "model".
  std::string_view archive_name() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void archive_name() const&& = delete;

  // Every record, in the order of the central directory.
  std::size_t record_count() const noexcept;
  RecordInfo record(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;
  std::vector<RecordInfo> records() const& WEIGHTMAP_LIFETIMEBOUND;
  void record(std::size_t) const&& = delete;
  void records() const&& = delete;

  bool has(std::string_view name) const;
  std::optional<RecordInfo> find(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  void find(std::string_view) const&& = delete;

  // The functions below answer invalid_argument, naming the record, if there is none of this name.

  // Size after inflating, in bytes.
  Result<std::uint64_t> size(std::string_view name) const;
  // Absolute offset of the record's local file header.
  Result<std::uint64_t> header_offset(std::string_view name) const;
  // Absolute offset of the record's first byte, from its local header: one 30-byte read and a check
  // of the name; a repeated question is answered from a cache.
  Result<std::uint64_t> payload_offset(std::string_view name) const;
  // The same by torch's padding rule from the directory alone, proven by the neighbouring record;
  // reads nothing. Fails with unsupported where the rule does not explain the record (an archive
  // that another tool wrote).
  Result<std::uint64_t> payload_offset_without_reading(std::string_view name) const;

  // Fills `out`, which must be exactly size(name) long; inflates if the record is deflated.
  // `threads` > 1 splits a stored record into that many parallel reads (at most 64).
  Result<void> read(std::string_view name, std::span<std::byte> out, unsigned threads = 1) const;
  // The whole record; refused with limit_exceeded above Limits::record_bytes if it is deflated.
  Result<std::vector<std::byte>> read(std::string_view name) const;
  // Calls `chunk` with consecutive pieces of at most `chunk_bytes`; stops early when it answers
  // false. Memory stays bounded by one chunk for stored records.
  Result<void> read_chunks(std::string_view name, std::size_t chunk_bytes,
                           const std::function<bool(std::span<const std::byte>)>& chunk) const;
  // Reads the record and compares its CRC-32. True if it matched, false if the directory holds 0
  // for a non-empty record, which means that the writer did not compute one.
  Result<bool> verify_crc(std::string_view name) const;

  // Content of `.data/version` or `version`. Fails with unsupported outside [min_version,
  // max_version], with corrupt if it is missing or not a number.
  Result<std::uint64_t> version() const;
  // The 40 digits of `.data/serialization_id`; nullopt if the file has none.
  Result<std::optional<std::string>> serialization_id() const;

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit ArchiveReader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
