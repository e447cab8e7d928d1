// Fills the storages of a checkpoint that were reserved when it was written: in place, in any
// order, by as many processes as there are.
//
//   auto fill = weightmap::CheckpointFill::open("model.pt");
//   if (!fill) return fail(fill.error());
//   if (auto ok = fill->write("layers.0.weight", bytes); !ok) return fail(ok.error());
//   ...                                         // and in one process, when all are done:
//   if (auto ok = fill->seal(); !ok) return fail(ok.error());
//
// The file's layout does not change, so whoever has it open sees what is written. A file that is
// not sealed opens, and CheckpointInfo::reserved says what is missing; torch.load reads zeros
// there. Whatever was written before a loss of power, marks included, is there after it only if it
// was synced, so fill all again then; a file that was sealed is whole. Const members may be called
// from several threads at once, write() for tensors of different storages, too. A forked child
// counts as one more filler from its first call on, and not before.
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
    bool is_written;  // marked so, by whichever process
  };

  // Maps the file shared and writable. Fails as Checkpoint::open() does; with invalid_argument if
  // nothing in it was reserved or it is sealed; with io if it cannot be written to, or another
  // process is sealing it.
  static Result<CheckpointFill> open(const std::filesystem::path& path);

  CheckpointFill(CheckpointFill&&) noexcept;
  CheckpointFill& operator=(CheckpointFill&&) noexcept;
  ~CheckpointFill();

  // What is in the file, as Checkpoint::open() gives it. Views show what is written.
  const Checkpoint& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void checkpoint() const&& = delete;

  // The reserved storages, in the order of their numbers, as they are at this moment.
  Result<std::vector<Storage>> storages() const;

  // The functions below take the name of a tensor and fail as Checkpoint::get() does, and with
  // invalid_argument if its storage was not reserved.

  // Writes all elements, row-major in this machine's byte order, exactly nbytes() of them. A tensor
  // that is all of its storage is marked as written; of others the caller says when the storage is
  // done (mark_written()). Fails with invalid_argument for a tensor that is not contiguous, with io
  // if the disk is full.
  Result<void> write(std::string_view name, std::span<const std::byte> elements) const;
  // The tensor's bytes in the mapping, to be written to by the caller, who then marks them. The
  // disk has given the space, so a full disk is an error here and no signal later.
  Result<std::span<std::byte>> writable_bytes(std::string_view name);
  // The tensor's storage has all its bytes.
  Result<void> mark_written(std::string_view name) const;

  // Computes the checksums of all reserved storages, writes everything to the disk, and marks the
  // file as sealed, in this order; so a file that says so is whole. Afterwards it is what a normal
  // save would have made, and one more record. Fails with invalid_argument, naming them, if
  // storages are not written; with io if another CheckpointFill has the file open, or the system
  // refuses; with cancelled if `progress`, which is called from this thread, stops it. Then others
  // can fill it and it can be sealed again. Where the file could not be written to the disk, what
  // is there is unknown: then no storage is marked any more, and all are to be written again.
  Result<void> seal(const Progress& progress = {});

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit CheckpointFill(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Positions in Checkpoint::storage() of the storages that nobody has written yet: those that were
// not marked when the checkpoint was opened; and in a file without marks, as torch's skip_data
// leaves it, those without a checksum for which the disk holds no block. Asks the file system about
// each storage without a checksum.
WEIGHTMAP_API std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint);

}  // namespace weightmap
