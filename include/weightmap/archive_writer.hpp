// Writes a zip archive as torch's own writer does, byte for byte: the inverse of ArchiveReader
// (archive.hpp).
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
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

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
  // Writes from the current position of a descriptor that is open for writing and need not support
  // seeking. The caller keeps it. finish() does not sync it. Bytes written before an error stay
  // written. Writing to a pipe without readers raises SIGPIPE unless the program ignores it.
  static Result<ArchiveWriter> to_descriptor(int descriptor,
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
  // Write a record of `size` bytes in parts: begin(), append() as often as needed, end(). They fail
  // with invalid_argument if the parts do not have the announced size.
  Result<Place> begin(std::string_view name, std::uint64_t size);
  Result<void> append(std::span<const std::byte> part);
  Result<void> end();

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
