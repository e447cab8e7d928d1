// An open regular file: its size and identity at the time of opening, and reads with pread. Or
// memory of somebody else in the place of one.
//
// Const members may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Offsets have 64 bits everywhere, and a whole checkpoint is mapped at once.
static_assert(sizeof(void*) == 8 && sizeof(off_t) == 8, "weightmap is for 64-bit systems");

class File final : public bytes::ByteSource {
 public:
  // Fails with io and the system's message if the file cannot be opened, with not_a_checkpoint if
  // it is empty or not a regular file (a FIFO does not block; for a folder os_error is EISDIR),
  // with invalid_argument for a path that contains a zero byte. Close-on-exec.
  static Result<File> open(const std::filesystem::path& path, bool writable);

  // Does the same for an untrusted path, which is opened only once it is known to lead to a regular
  // file, since opening a device can have effects.
  static Result<File> open_foreign(const std::filesystem::path& path);

  // Opens the file of a descriptor that is open for reading; the caller keeps it. The file is
  // opened again, since position and read-ahead belong to the open file; if that fails (another
  // user's file, no /proc), this is another descriptor of the same open file, and gives no advice.
  // Fails likewise, with io for an invalid descriptor.
  static Result<File> from_descriptor(int descriptor);

  // A file whose content is this memory, which must stay valid and unchanged. It has no descriptor
  // (-1), and of its generation only the size. Fails with not_a_checkpoint if it is empty.
  static Result<File> in_memory(std::span<const std::byte> content);
  bool is_in_memory() const noexcept { return !memory_.empty(); }
  std::span<const std::byte> memory() const noexcept { return memory_; }

  // From here on read() asks `origin`, which has as many bytes and puts them into this file as they
  // arrive. So changes of this file tell nothing: its generation stays the one of now.
  void read_through(std::shared_ptr<const bytes::ByteSource> origin) noexcept {
    origin_ = std::move(origin);
  }

  // As of the time of opening.
  std::uint64_t size() const noexcept override { return generation_.size; }
  const Generation& generation() const noexcept { return generation_; }
  // As of now.
  Result<Generation> current_generation() const;
  // Fails with io if the content has changed since the time of opening.
  Result<void> check_unchanged() const;
  // Checks only the size, for files that other processes write to.
  Result<void> check_not_resized() const;

  // Continues after short counts and signals. A truncated file is an io error with its own message;
  // so are pages of memory that are not there (any more), which raise no signal.
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override;
  Result<void> will_read(std::span<const ByteRange> ranges) const override {
    return origin_ ? origin_->will_read(ranges) : Result<void>();
  }

  // Announce the next accesses: a few small scattered reads, or faults through a mapping. One
  // descriptor serves both, and its readahead (8 MiB on many systems) would otherwise come with
  // every small read. POSIX_FADV_NORMAL undoes POSIX_FADV_RANDOM. No advice is given on an open
  // file that is shared, on memory, or on a file that one read covers.
  void advise_metadata() const noexcept { advise(Access::random); }
  void advise_mapping() const noexcept { advise(Access::normal); }

  int descriptor() const noexcept { return descriptor_.get(); }
  // Opens the same file once more, whatever its name is now, for reads that bring their own pages
  // and none ahead. None (-1) for memory, for a file that reads from another source, and where an
  // open may drop what is cached (FUSE).
  UniqueFd open_without_readahead() const;

 private:
  enum class Access { normal, random };
  void advise(Access access) const noexcept;
  static Result<File> of(UniqueFd descriptor);
  Result<void> read_memory(std::uint64_t offset, std::span<std::byte> out) const;
  tl::unexpected<Error> changed(const Generation& now) const;
  File(UniqueFd descriptor, const Generation& generation) noexcept
      : descriptor_(std::move(descriptor)), generation_(generation) {}

  UniqueFd descriptor_;
  std::span<const std::byte> memory_;
  Generation generation_;
  std::shared_ptr<const bytes::ByteSource> origin_;  // of the bytes; nullptr: they are all there
  bool is_shared_ = false;                           // the open file is the caller's
};

// Reads if that needs no disk: true if all bytes are in the page cache. Otherwise the system has
// begun to read them, and ahead of them if it does so for this descriptor. False also if the file
// system cannot tell (RWF_NOWAIT, Linux 4.14).
bool read_if_cached(int descriptor, std::uint64_t offset, std::span<std::byte> out) noexcept;

}  // namespace weightmap::os
