// Files that come into being: each appears under its name only once it is complete and on the disk.
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
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

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

// The content of a record in an archive, or of a tensor, that is being written.
class RecordContent {
 public:
  // Consumes the next bytes of a record without keeping them. The caller returns its errors.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  // Passes all bytes of a record to `take`, in order and in parts. Called once by the writing
  // thread.
  using Produce = std::function<Result<void>(const Take& take)>;

  // Borrows the bytes, which must not change until they are written. Bytes of a checkpoint that is
  // mapped with Protection::guard may be lost meanwhile, which fails the write with io.
  static RecordContent bytes(std::span<const std::byte> content) noexcept {
    RecordContent made(Kind::memory, content.size());
    made.data_ = content.data();
    return made;
  }
  static RecordContent text(std::string_view content) noexcept {
    return bytes(std::as_bytes(std::span(content)));
  }
  // Makes content of `size` bytes, which need not be in memory at once.
  static RecordContent produced(std::uint64_t size, Produce produce) {
    RecordContent made(Kind::produced, size);
    made.produce_ = std::move(produce);
    return made;
  }
  // Makes a hole, which reads as zeros; zeros if the target does not support holes.
  static RecordContent zeros(std::uint64_t size) noexcept {
    return RecordContent(Kind::zeros, size);
  }
  // Makes a hole to be filled in later; the record's CRC-32 is stated as "not computed".
  static RecordContent reserved(std::uint64_t size) noexcept {
    return RecordContent(Kind::reserved, size);
  }

  // Returns the same content, to be changed in place later; its CRC-32 is stated as "not computed".
  RecordContent changeable() && {
    is_summed_ = false;
    return std::move(*this);
  }

  enum class Kind : std::uint8_t { memory, produced, zeros, reserved };
  Kind kind() const noexcept { return kind_; }
  std::uint64_t size() const noexcept { return size_; }
  bool is_summed() const noexcept { return is_summed_; }
  // The bytes of content in memory; otherwise empty.
  std::span<const std::byte> memory() const noexcept {
    return {data_, kind_ == Kind::memory ? static_cast<std::size_t>(size_) : 0};
  }
  // The function of produced content; otherwise empty.
  const Produce& produce() const noexcept { return produce_; }

 private:
  RecordContent(Kind kind, std::uint64_t size) noexcept : kind_(kind), size_(size) {}

  Kind kind_;
  bool is_summed_ = true;
  std::uint64_t size_;
  const std::byte* data_ = nullptr;
  Produce produce_ = {};
};

struct PublishOptions {
  bool copy = false;         // keeps `from` in place and publishes a copy
  bool verify_crc = false;   // first compares every byte of `from` with its CRC-32
  bool any_content = false;  // `from` need not be a checkpoint, and is not checked
  bool any_format = false;   // `from` may have another format than `target` has
  bool follow = false;       // `from` may be a symbolic link, which is resolved
  Progress progress = {};    // for the checksums, then for the copy; see OpenOptions::progress
};

struct PublishReport {
  Generation generation;  // of the file that `target` names now
  bool replaced = false;  // a file of this name existed before
  bool copied = false;    // `from` still exists: a copy was requested or needed
  std::uint64_t bytes = 0;
  std::filesystem::path previous = {};  // the folder that a link led to before; empty: to none
};

// Replaces a checkpoint while other processes have it open: makes `target` name the checkpoint
// `from`, atomically and durably. May be called from any thread. Opening `target` finds the
// complete old or new file, also after a loss of power. Processes that have the old file open keep
// it. Within a file system the file is renamed; otherwise it is first copied into the directory of
// `target`, as a reflink where supported, under a name that begins with a dot. A followed link
// stays, and dangles once its file was renamed.
//
// If `target` exists, its permissions are kept, and its owner and group as far as this process may
// set them; if the group cannot be kept, it gets no rights. Otherwise the new file has those of
// `from`.
//
// A folder is published under a symbolic link: all of its files are written to the disk, then
// `target`, which is a link or is made, leads to the folder, by one rename. Opening `target` finds
// the files of one version; the folder of the other one stays. `bytes` is that of all its files.
//
// If publish() fails, `target` is unchanged and no new file is left behind. It fails as
// Checkpoint::open() does if `from` is not a checkpoint; with unsupported if it is one of several
// files that is not given by its folder; with invalid_argument if its format is not that of the
// file that `target` names, or not that which the ending of the name promises (.safetensors, .gguf,
// .npz), if `from` is a symbolic link and is neither followed nor copied, if both are the same
// file; for a file, if `target` is a symbolic link, or exists and is not a regular file; for a
// folder, if `target` exists and is no symbolic link, or if it is to be copied; with io if the
// system refuses, or if `from` was written to meanwhile. An io error that says "is in place, but"
// means that `target` is the new file, but was written to at the last moment, or may not survive a
// loss of power.
WEIGHTMAP_API Result<PublishReport> publish(const std::filesystem::path& from,
                                            const std::filesystem::path& target,
                                            const PublishOptions& options = {});

}  // namespace weightmap
