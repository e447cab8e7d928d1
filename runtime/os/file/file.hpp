// An open regular file: its size and identity at the moment of opening, and reads with pread.
//
// Const members may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

#include "runtime/bytes/byte_source.hpp"
#include "runtime/os/unique_fd.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Offsets are 64 bits wide everywhere, and a whole checkpoint is mapped at once.
static_assert(sizeof(void*) == 8 && sizeof(off_t) == 8, "weightmap is for 64-bit systems");

class File final : public bytes::ByteSource {
 public:
  // Fails with io and the system's words if the file cannot be opened, with not_a_checkpoint if it
  // is empty or no regular file (a FIFO is not waited for; of a folder os_error is EISDIR), with
  // invalid_argument for a path that contains a zero byte. Close-on-exec.
  static Result<File> open(const std::filesystem::path& path, bool writable);

  // The same for a path that somebody else has chosen, which is opened only once it is known to
  // lead to a regular file: to open a device can do something.
  static Result<File> open_foreign(const std::filesystem::path& path);

  // The file of a descriptor that is open for reading, which stays its owner's. It is opened again,
  // since position and read-ahead belong to the open file; where that cannot be (another user's
  // file, no /proc), this is another descriptor of the same open file, and advises nothing. Fails
  // likewise, with io for what is no descriptor.
  static Result<File> from_descriptor(int descriptor);

  // Of the moment of opening.
  std::uint64_t size() const noexcept override { return generation_.size; }
  const Generation& generation() const noexcept { return generation_; }
  // Of now.
  Result<Generation> current_generation() const;
  // Fails with io if the content is not that of the moment of opening any more.
  Result<void> check_unchanged() const;
  // The same of its size, where others may write to it.
  Result<void> check_not_resized() const;

  // Continues after short counts and signals. Fails with io, saying so, if the file has shrunk.
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override;

  // Says what comes: a few small reads here and there, or faults through a mapping. One descriptor
  // serves both, and its readahead state (8 MiB on many systems) would otherwise come with every
  // small read. POSIX_FADV_NORMAL takes POSIX_FADV_RANDOM back. Nothing is said of an open file
  // that others have, too, nor of a file that one read takes.
  void advise_metadata() const noexcept { advise(Access::random); }
  void advise_mapping() const noexcept { advise(Access::normal); }

  int descriptor() const noexcept { return descriptor_.get(); }

 private:
  enum class Access { normal, random };
  void advise(Access access) const noexcept;
  static Result<File> of(UniqueFd descriptor);
  tl::unexpected<Error> changed(const Generation& now) const;
  File(UniqueFd descriptor, const Generation& generation) noexcept
      : descriptor_(std::move(descriptor)), generation_(generation) {}

  UniqueFd descriptor_;
  Generation generation_;
  bool is_shared_ = false;  // the open file is the caller's
};

}  // namespace weightmap::os
