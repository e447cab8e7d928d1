// A file that appears under its name only once it is complete and on the disk.
//
//   auto file = weightmap::NewFile::create("model.pt");
//   if (!file) return tl::unexpected(file.error());
//   if (auto ok = file->reserve(bytes); !ok) return tl::unexpected(ok.error());
//   if (auto ok = file->write_at(0, content); !ok) return tl::unexpected(ok.error());
//   if (auto ok = file->commit(); !ok) return tl::unexpected(ok.error());
//
// Until commit() the file has no name if the file system supports that (O_TMPFILE), otherwise a
// temporary name in the same directory that begins with a dot. If the process ends before, in any
// way, the old file is unchanged; the next NewFile of the same name removes a leftover temporary
// file. Errors name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weightmap/export.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct NewFileOptions {
  // Permissions of a file that replaces none, less the umask of the process. Otherwise the new file
  // takes the permissions of the old one, and its owner and group as far as the process may set
  // them; if the group cannot be kept, it gets no rights.
  unsigned mode = 0666;
  // A file that must not be replaced, under any name, because it is being read.
  std::optional<Generation> kept = {};
  // Follows a symbolic link: the link stays, and its target is replaced or created, as by open(2);
  // in a directory for all users, such as /tmp, only a link of this user or of the directory's
  // owner. Otherwise the link itself is replaced.
  bool follows_links = true;
  // Makes commit() wait for the disk. Unset it for files that a restart may lose.
  bool durable = true;
};

// Not thread-safe, except write_at() of ranges that do not overlap. All functions fail with io if
// the system refuses: a full disk, a limit, a file system that is read-only.
class WEIGHTMAP_API NewFile {
 public:
  // Fails with invalid_argument if `path` is a directory, a device or `kept`; with io as above.
  static Result<NewFile> create(const std::filesystem::path& path,
                                const NewFileOptions& options = {});
  // Creates the file `name` in an open directory, which the caller keeps. Follows no link.
  static Result<NewFile> create_in(int directory, const std::string& name,
                                   const NewFileOptions& options = {});

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();  // removes an uncommitted file

  // Open for reading and writing, close-on-exec, and closed by the destructor.
  int descriptor() const noexcept;

  // A size beyond RLIMIT_FSIZE is an error (EFBIG) of each of these, and no signal.
  // Sets the size of the file; new bytes are zeros that take no space.
  Result<void> resize(std::uint64_t bytes);
  // Also allocates the space where the file system can, so a full disk is an error now.
  Result<void> reserve(std::uint64_t bytes);
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> content);
  // Appends to what write() and skip() have done. For a durable file, writeback starts soon, so
  // that sync() has little left to wait for.
  Result<void> write(std::span<const std::byte> content);
  // Skips so many bytes, which read as zeros and take no space where holes are supported.
  Result<void> skip(std::uint64_t bytes);

  // Writes the file to the disk, unless it is not durable; commit() does so if this was not called.
  // A failure is final: the system may have dropped dirty pages and report success the next time,
  // so commit() then fails, too.
  Result<void> sync();
  // Reads the end of the file and compares it with `end`; fails with io if it differs.
  Result<void> check_end(std::span<const std::byte> end) const;

  // `refuse` fails with invalid_argument if the name exists.
  enum class Existing : std::uint8_t { replace, refuse };
  // Writes the file to the disk, unless it is not durable, and gives it its name atomically; call
  // it once. An error with "is in place, but" means that the name refers to the new file, which
  // may not survive a loss of power. After any other error there is no new file.
  Result<void> commit(Existing existing = Existing::replace);

 private:
  struct State;
  explicit NewFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
