// Writes a zip archive as torch's own writer does, byte for byte: the other half of ArchiveReader
// (archive.hpp).
//
//   auto archive = weightmap::ArchiveWriter::create("model.pt");
//   if (!archive) return fail(archive.error());
//   for (const auto& [name, content] : records)
//     if (auto ok = archive->write(name, weightmap::RecordContent::bytes(content)); !ok)
//       return fail(ok.error());
//   if (auto ok = archive->finish(); !ok) return fail(ok.error());
//
// Records are stored at multiples of the alignment, one after another. At the end come the records
// `version`, `byteorder` (unless it was written) and `.data/serialization_id`, then the directory.
// Equal records in equal order give equal bytes: an archive has no times in it.
//
// Written to a path, the archive appears there once it is whole and on the disk, as NewFile does
// it (new_file.hpp); until finish() has succeeded, what was there stays. After an error the writer
// can only be destroyed, and every further call fails with the same error; nothing is left behind.
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
  // Each record's first byte lies at a multiple of this. It need not be a power of two. At most
  // 65504, what the padding field has room for; then an archive as torch.load knows it needs a
  // record `.storage_alignment` that says so.
  std::uint64_t alignment = 64;
  // Whether each record gets its CRC-32; otherwise 0, which readers take for "not computed".
  bool crc32 = true;
  // The top folder of the records. Empty: as torch.save calls it, by the file's name without its
  // last extension, or "archive" where there is none or it is not ASCII.
  std::string archive_name = {};
  // How the file comes into being, if it is written to a path.
  NewFileOptions file = {};
  // Is called from the thread that writes.
  Progress progress = {};
};

class WEIGHTMAP_API ArchiveWriter {
 public:
  // What the archive's version is if nobody asks for more, and the highest that there is; torch's
  // own bounds.
  static constexpr std::uint64_t default_version = 3;
  static constexpr std::uint64_t max_version = 10;

  // Takes what comes next of the archive. An error ends the writing and is passed on.
  using Write = std::function<Result<void>(std::span<const std::byte>)>;

  // All fail with invalid_argument if the name or the alignment cannot be.

  // Into a file that appears at `path` at the end. Fails with io as NewFile::create() does.
  static Result<ArchiveWriter> create(const std::filesystem::path& path,
                                      const ArchiveWriterOptions& options = {});
  // From the current position of a descriptor that is open for writing, which stays its owner's and
  // need not be able to seek. finish() does not sync it. What was written when an error came, stays
  // written. Writing to a pipe without readers raises SIGPIPE where the program does not ignore it.
  static Result<ArchiveWriter> to_descriptor(int descriptor,
                                             const ArchiveWriterOptions& options = {});
  static Result<ArchiveWriter> to_function(Write write, const ArchiveWriterOptions& options = {});

  ArchiveWriter(ArchiveWriter&&) noexcept;
  ArchiveWriter& operator=(ArchiveWriter&&) noexcept;
  ~ArchiveWriter();  // what was not finished is gone

  enum class Compression : std::uint8_t { stored, deflated };
  struct Place {
    std::uint64_t header_offset;  // of the local header, from the beginning of the archive
    std::uint64_t offset;         // of the first byte of the record, likewise
    std::uint64_t stored_bytes;
  };

  // The functions below fail with io if the system refuses, with what the caller's functions fail
  // with, with cancelled if Progress said so, and with invalid_argument in any call behind
  // finish(). Names are without the top folder: "data/0".

  // Says, before the first record, how large the whole archive will be; one that becomes larger or
  // smaller fails with invalid_argument. Gets the space on the disk where the file system can, so
  // that what does not fit is known now, and tells progress() of it. Space that is got is no hole:
  // not for an archive with reserved records.
  Result<void> reserve_space(std::uint64_t archive_bytes);

  // Writes a record. Fails with invalid_argument for a name that is empty, no UTF-8, no relative
  // path, or in the archive already, also in other letters of the case. Deflated content is held in
  // memory, and stored where it would not become smaller.
  Result<Place> write(std::string_view name, const RecordContent& content,
                      Compression compression = Compression::stored);
  // A record of `size` bytes in parts: begin(), append() as often as needed, end(). Fails with
  // invalid_argument if the parts are more or fewer bytes than announced.
  Result<Place> begin(std::string_view name, std::uint64_t size);
  Result<void> append(std::span<const std::byte> part);
  Result<void> end();

  // Raises the version that the archive will carry to at least `version`: what a reader must know
  // in order to understand a record. Fails with invalid_argument beyond max_version. From 6 on the
  // record is called `.data/version`.
  Result<void> require_version(std::uint64_t version);

  // Writes what belongs at the end and, for a path, makes sure of it: writes the file to the disk,
  // reads the directory back and compares it, and gives the file its name. Returns the bytes of the
  // archive.
  Result<std::uint64_t> finish();

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit ArchiveWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
