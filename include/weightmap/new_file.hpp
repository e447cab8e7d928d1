// A file that appears under its name only once it is complete and on the disk.
//
//   auto file = weightmap::NewFile::create("model.pt");
//   if (!file) return fail(file.error());
//   if (auto ok = file->reserve(bytes); !ok) return fail(ok.error());
//   if (auto ok = file->write_at(0, content); !ok) return fail(ok.error());
//   if (auto ok = file->commit(); !ok) return fail(ok.error());
//
// Until commit() the file has no name where the file system knows such files (O_TMPFILE), else one
// in the same directory that begins with a dot. A process that ends before, however that happens,
// leaves what had the name as it was; where a temporary name is left behind, the next NewFile of
// the same name removes it. Errors name the file.
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
  // Permissions of a file that replaces none, less the umask of the process. One that replaces
  // another takes over the permissions of that, and its owner and group where the process may give
  // files to them; where the group cannot be kept, it has no rights.
  unsigned mode = 0666;
  // A file that is not to be replaced, whatever it is called: it is being read.
  std::optional<Generation> kept = {};
  // Whether a symbolic link stays, and what it leads to is replaced, or made if there is nothing,
  // as open(2) does it; in a directory for all, such as /tmp, only a link of this user or of the
  // directory's owner. Else the link itself is replaced.
  bool follows_links = true;
  // Whether commit() waits for the disk. Not for what a restart may lose.
  bool durable = true;
};

// Not thread-safe, but for write_at() of ranges that do not overlap. All of these fail with io if
// the system refuses: a full disk, a limit, a file system that is read-only.
class WEIGHTMAP_API NewFile {
 public:
  // Fails with invalid_argument if `path` is a directory, a device or `kept`; with io if the system
  // refuses.
  static Result<NewFile> create(const std::filesystem::path& path,
                                const NewFileOptions& options = {});
  // The file `name` in a directory that is open, which stays its owner's. Follows no link.
  static Result<NewFile> create_in(int directory, const std::string& name,
                                   const NewFileOptions& options = {});

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();  // removes what was not committed

  // Open for reading and writing, close-on-exec, and closed by the destructor.
  int descriptor() const noexcept;

  // More bytes than RLIMIT_FSIZE allows are an error (EFBIG) of each of these, and no signal.
  // Makes the file that large, of zeros that take no space.
  Result<void> resize(std::uint64_t bytes);
  // The same, and gets the space, where the file system can: what does not fit is known now.
  Result<void> reserve(std::uint64_t bytes);
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> content);
  // Behind what write() wrote, or skip() left out, before. Of a durable file the disk gets it
  // soon, so that sync() has little left to wait for.
  Result<void> write(std::span<const std::byte> content);
  // Leaves out so many bytes, which read as zeros and take no space where the file system can.
  Result<void> skip(std::uint64_t bytes);

  // Writes the file to the disk, unless it is not durable. commit() does so, too, if it was not
  // done. A failure is final: the system may have given up what it could not write, and would say
  // the next time that all is well, so commit() then fails, too.
  Result<void> sync();
  // Reads the end of the file and compares it with `end`; io if it differs.
  Result<void> check_end(std::span<const std::byte> end) const;

  // `refuse` fails with invalid_argument if something has the name.
  enum class Existing : std::uint8_t { replace, refuse };
  // Writes the file to the disk, unless it is not durable, and gives it its name in one step; to be
  // called once. An error that says "is in place, but" means that the name leads to the new file
  // and that the system did not confirm that this will outlive a loss of power. After any other the
  // file is not there.
  Result<void> commit(Existing existing = Existing::replace);

 private:
  struct State;
  explicit NewFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
