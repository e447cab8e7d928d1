// The zip archive beneath a checkpoint: its records, their places and their bytes, which are read
// and written.
//
// ArchiveReader serves tools, and programs that keep their own records in a torch archive; it does
// not interpret tensors. It reads with pread, so a truncated file is an error here, never a signal.
// Const members may be called from several threads at once, and in a child after fork(). Names are
// borrowed from the reader and valid until it is destroyed; moving it is fine, and a moved-from
// reader may only be assigned to or destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class ArchiveReader;
template <>
inline constexpr bool lends_from_itself<ArchiveReader> = true;

class WEIGHTMAP_API ArchiveReader {
 public:
  // The lowest and the highest supported version; these are torch's own bounds.
  static constexpr std::uint64_t min_version = 1;
  static constexpr std::uint64_t max_version = 10;

  struct RecordInfo {
    std::string_view name;        // without the archive's top directory: "data.pkl", "data/0"
    std::uint64_t header_offset;  // absolute offset of the local file header
    std::uint64_t stored_bytes;   // bytes in the file
    std::uint64_t size;           // bytes after inflating; == stored_bytes if not deflated
    std::uint32_t crc32;          // 0 with size > 0: the writer did not compute it
    bool deflated;
  };

  // Reads and proves the central directory. The file stays open until the reader is destroyed. Of
  // the options, only the limits apply. Fails as Checkpoint::open() does for a file that is not an
  // unambiguous zip archive. FILE//MEMBER is an archive within one; its offsets are those in FILE.
  static Result<ArchiveReader> open(const std::filesystem::path& path,
                                    const OpenOptions& options = {});

  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) noexcept;
  ~ArchiveReader();

  // Returns the top directory of the records, without the slash: "archive", "model".
  std::string_view archive_name() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void archive_name() const&& = delete;

  // The records in directory order. Precondition of record(): index < record_count().
  std::size_t record_count() const noexcept;
  RecordInfo record(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;
  std::vector<RecordInfo> records() const& WEIGHTMAP_LIFETIMEBOUND;
  void record(std::size_t) const&& = delete;
  void records() const&& = delete;

  bool has(std::string_view name) const;
  std::optional<RecordInfo> find(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  void find(std::string_view) const&& = delete;

  // The functions below fail with not_found, naming the record, if there is none of this name; with
  // io if the file cannot be read or was truncated; with corrupt if the record's local header
  // contradicts the directory, or deflated bytes do not inflate to the stated size.

  // Returns the absolute offset of the record's first byte, according to its local header, which is
  // read and compared with the directory. Repeated calls use a cache.
  Result<std::uint64_t> payload_offset(std::string_view name) const;
  // Fills `out`, which must be exactly RecordInfo::size long, with the record's bytes, inflated if
  // the record is deflated. `threads` > 1 splits a stored record into parallel reads, at most 64.
  Result<void> read(std::string_view name, std::span<std::byte> out, unsigned threads = 1) const;
  // Returns the whole record. Fails with limit_exceeded if it is deflated and inflates to more than
  // Limits::record_bytes.
  Result<std::vector<std::byte>> read(std::string_view name) const;
  // Returns the record's bytes as content for an ArchiveWriter. They are read when they are
  // written, so this reader must live until then, and compared with the record's CRC-32 where it
  // has one: writing fails with corrupt on a mismatch.
  Result<RecordContent> content(std::string_view name) const;
  // Reads the record and compares its CRC-32. Returns true if it matches, false if the writer did
  // not compute one, which is a 0 in the directory for a record that is not empty. Fails with
  // corrupt on a mismatch.
  Result<bool> verify_crc(std::string_view name) const;

  // Returns the number in the record `.data/version` or `version`. Fails with unsupported if it is
  // not in [min_version, max_version], with corrupt if it is missing or not a number.
  Result<std::uint64_t> version() const;
  // Returns the 40 digits of `.data/serialization_id`, or nullopt if the file has none.
  Result<std::optional<std::string>> serialization_id() const;

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit ArchiveReader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

struct ArchiveWriterOptions {
  // Alignment of each record's first byte. It need not be a power of two. At most 65504, which is
  // the maximum of the padding field; for another value than 64, torch.load needs a record
  // `.storage_alignment` that states it.
  std::uint64_t alignment = 64;
  // Computes the CRC-32 of each record; otherwise it is 0, which readers take for "not computed".
  bool crc32 = true;
  // The top folder of the records. Empty: torch.save's choice, which is the file's name without its
  // last extension, or "archive" if there is no name or it is not ASCII.
  std::string archive_name = {};
  // How the file is created if it is written to a path.
  NewFileOptions file = {};
  // Called by the writing thread.
  Progress progress = {};
};

// Writes a zip archive as torch's own writer does, byte for byte: the inverse of
// ArchiveReader.
//
//   auto archive = weightmap::ArchiveWriter::create("model.pt");
//   if (!archive) return tl::unexpected(archive.error());
//   for (const auto& [name, content] : records)
//     if (auto ok = archive->write(name, weightmap::RecordContent::bytes(content)); !ok)
//       return tl::unexpected(ok.error());
//   if (auto ok = archive->finish(); !ok) return tl::unexpected(ok.error());
//
// Records are stored one after another at multiples of the alignment. The records `version`,
// `byteorder` (unless it was written) and `.data/serialization_id` follow at the end, then the
// directory. Archives contain no times, so equal records in equal order give equal bytes.
//
// At a path, the archive appears atomically once it is complete and on the disk, as with NewFile
// (new_file.hpp); until finish() has succeeded, the old file stays. After an error the writer can
// only be destroyed, every further call fails with the same error, and nothing is left behind.
// Memory is constant, however large the records are. Not thread-safe.
class WEIGHTMAP_API ArchiveWriter {
 public:
  // The default and the highest version of an archive; torch's own bounds.
  static constexpr std::uint64_t default_version = 3;
  static constexpr std::uint64_t max_version = 10;

  // Receives the next bytes of the archive. An error ends the writing and is passed on.
  using Write = std::function<Result<void>(std::span<const std::byte>)>;

  // All of these fail with invalid_argument for an invalid name or alignment.

  // Creates a file that appears at `path` at the end. Fails with io as NewFile::create() does.
  static Result<ArchiveWriter> create(const std::filesystem::path& path,
                                      const ArchiveWriterOptions& options = {});
  static Result<ArchiveWriter> to_function(Write write, const ArchiveWriterOptions& options = {});

  ArchiveWriter(ArchiveWriter&&) noexcept;
  ArchiveWriter& operator=(ArchiveWriter&&) noexcept;
  ~ArchiveWriter();  // removes an unfinished file

  enum class Compression : std::uint8_t { stored, deflated };
  struct Place {
    std::uint64_t header_offset;  // of the local header, from the beginning of the archive
    std::uint64_t offset;  // of the first byte of the record, from the beginning of the archive
    std::uint64_t stored_bytes;
  };

  // The functions below fail with io if the system refuses, with the errors of the caller's
  // functions, with cancelled if Progress returned false, and with invalid_argument in any call
  // after finish(). Names are without the top folder: "data/0".

  // Announces the size of the whole archive before the first record; an archive of another size
  // fails with invalid_argument. Reserves the space where the file system can, so that a full disk
  // is an error now, and passes the size to progress(). Not for an archive with reserved records,
  // since reserved space contains no holes.
  Result<void> reserve_space(std::uint64_t archive_bytes);

  // Writes a record. Fails with invalid_argument for a name that is empty, not UTF-8, not a
  // relative path, or repeats one without regard to case. Deflated content is held in memory, and
  // is stored instead if compression does not save space.
  Result<Place> write(std::string_view name, const RecordContent& content,
                      Compression compression = Compression::stored);
  // Raises the archive's version to at least `version`, which a reader needs to understand a
  // record. Fails with invalid_argument beyond max_version. From 6 on it is named `.data/version`.
  Result<void> require_version(std::uint64_t version);

  // Writes the end of the archive. For a path, also writes the file to the disk, reads the
  // directory back and compares it, and gives the file its name. Returns the bytes of the archive.
  Result<std::uint64_t> finish();

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit ArchiveWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
