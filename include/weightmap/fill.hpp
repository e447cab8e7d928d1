// Fills the reserved storages of a checkpoint: in place, in any order, by any number of processes.
//
//   auto fill = weightmap::CheckpointFill::open("model.pt");
//   if (!fill) return tl::unexpected(fill.error());
//   if (auto ok = fill->write("layers.0.weight", bytes); !ok) return tl::unexpected(ok.error());
//   // ... and in one process, when all are done:
//   if (auto ok = fill->seal(); !ok) return tl::unexpected(ok.error());
//
// The file's layout does not change, so processes that have it open see the writes. An unsealed
// file opens, and CheckpointInfo::reserved lists the unwritten storages; torch.load reads zeros
// there. After a loss of power, bytes and status of earlier writes may be lost unless they were
// synced, so fill all storages again; a sealed file is complete. Const members may be called from
// several threads at once, including write() for tensors of different storages. A forked child
// becomes a filler of its own at its first call, not before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class CheckpointFill;
template <>
inline constexpr bool lends_from_itself<CheckpointFill> = true;

class WEIGHTMAP_API CheckpointFill {
 public:
  struct Storage {
    std::string key;       // "3" for data/3
    std::uint64_t offset;  // of the first byte in the file
    std::uint64_t nbytes;
    bool is_written;  // by its status byte, whichever process set it
  };

  // Maps the file shared and writable. Fails as Checkpoint::open() does; with invalid_argument if
  // the file has no reserved storages or is sealed; with io if it cannot be written to, or another
  // process is sealing it.
  static Result<CheckpointFill> open(const std::filesystem::path& path);

  CheckpointFill(CheckpointFill&&) noexcept;
  CheckpointFill& operator=(CheckpointFill&&) noexcept;
  ~CheckpointFill();

  // The file as an open checkpoint. Views show what is written.
  const Checkpoint& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void checkpoint() const&& = delete;

  // Returns the reserved storages by number, with their current state.
  Result<std::vector<Storage>> storages() const;

  // The functions below take the name of a tensor and fail as Checkpoint::get() does, and with
  // invalid_argument if its storage was not reserved.

  // Writes all elements, row-major in this machine's byte order, exactly nbytes() of them. If the
  // tensor fills its storage, the storage is marked as written; otherwise the caller marks it when
  // it is complete (mark_written()). Fails with invalid_argument for a tensor that is not
  // contiguous, with io if the disk is full.
  Result<void> write(std::string_view name, std::span<const std::byte> elements) const;
  // Returns the tensor's bytes in the mapping for the caller to write and then mark. The disk space
  // is allocated here, so a full disk is an error here and no signal later.
  Result<std::span<std::byte>> writable_bytes(std::string_view name);
  // Marks the tensor's storage as completely written.
  Result<void> mark_written(std::string_view name) const;

  // Computes the checksums of all reserved storages, writes everything to the disk, and marks the
  // file as sealed, in this order, so a file marked as sealed is complete. Afterwards it equals a
  // normal save plus one record. Fails with invalid_argument, naming them, if storages are
  // unwritten; with io if another CheckpointFill has the file open, or the system refuses; with
  // cancelled if `progress`, which is called from this thread, stops it. After a failure the file
  // can be filled and sealed again. If the file could not be written to the disk, its content is
  // unknown: then all storages are marked as unwritten, and must be written again.
  Result<void> seal(const Progress& progress = {});

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit CheckpointFill(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Returns the positions in Checkpoint::storage() of unwritten storages: those that were not marked
// when the checkpoint was opened; and in a file without status bytes, as torch's skip_data leaves
// it, and in files of any format those without a checksum and without an allocated block on the
// disk, or with the file's last block unallocated. Such a hole is also what a sparse copy makes of
// zeros. Queries the file system for each storage without a checksum.
WEIGHTMAP_API std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint);

// The bytes of storages without a checksum that are holes in their files, which read as zeros:
// parts that a download has not written yet, or zeros that a sparse copy left out.
WEIGHTMAP_API std::uint64_t hole_bytes(const Checkpoint& checkpoint);

}  // namespace weightmap
