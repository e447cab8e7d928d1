// What the tensors of a checkpoint rest on: its storages, and the memory that bindings to other
// languages and libraries lend to them. Programs that read tensors need none of this.
//
//   auto memory = weightmap::Backing(checkpoint).copy_on_write();
//   if (!memory) return tl::unexpected(memory.error());
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// Borrows the checkpoint, and so does all that it returns: it is valid until that is destroyed;
// moving that is fine. All members may be called from any thread.
class WEIGHTMAP_API Backing {
 public:
  explicit Backing(const Checkpoint& checkpoint WEIGHTMAP_LIFETIMEBOUND) noexcept;
  explicit Backing(const Checkpoint&&) = delete;  // would dangle

  std::size_t storage_count() const noexcept;
  // Precondition: index < storage_count().
  NamedStorage storage(std::size_t index) const noexcept;
  // Returns the paths given to open() or open_files(), made absolute; empty for a descriptor or
  // memory.
  std::vector<std::filesystem::path> opened_paths() const;

  // Returns Checkpoint::mapping() as private writable memory: a write copies its page and reaches
  // neither the file nor mapping(). It serves libraries without read-only tensors. Reading costs no
  // memory. It is mapping() itself if that is private and writable; otherwise the first call makes
  // a second mapping. Fails with io if the system refuses it, or if the file was written to since
  // the open.
  Result<std::span<std::byte>> copy_on_write() const;
  // Returns the memory in which a storage of `storage_bytes` is passed to a library without
  // read-only memory: copy_on_write(), or mapping() itself, which must then only be read.
  // OpenOptions::copy_on_write decides, or `how` in its place. A checkpoint that was opened
  // writable returns its writable mapping. Makes no system call except in the first
  // copy_on_write(). Fails as that does; with invalid_argument if `how` asks for read-only memory
  // of a writable mapping.
  Result<std::span<std::byte>> lend(std::uint64_t storage_bytes,
                                    std::optional<CopyOnWrite> how = {}) const;
  // Reports a write to a read-only mapping() on standard error, with tensor and file, before its
  // SIGSEGV goes on to the previous handler or the default action: docs/protection.md.
  // Protection::guard does so anyway. Call it if you pass mapping() itself on with lend(). Covers
  // at most 1,024 checkpoints at a time; without effect where the system refuses.
  void tell_refused_writes() const;

  // Copies view.bytes(), with the gaps between the elements, by reads of the file as
  // Checkpoint::gather() does, and fails as that does unless `out` is view.bytes().size() long.
  Result<void> copy_bytes(const TensorView& view, std::span<std::byte> out) const;

 private:
  Checkpoint::State* state_;
};

}  // namespace weightmap
