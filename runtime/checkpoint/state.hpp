// What a Checkpoint holds.
//
// Everything is filled in by the open, in one thread, and only read afterwards, but for the members
// that say otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "mmap/file.hpp"
#include "mmap/mapping.hpp"
#include "mmap/pages/process_faults.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/catalog_in_use.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/checkpoint/gate.hpp"
#include "runtime/format/format.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

struct Checkpoint::State {
  State(os::File opened, std::string shown_name, OpenOptions complete);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { delete copy_on_write.load(); }

  os::File file;          // a snapshot of what was opened, if that was asked for
  CatalogInUse catalogs;  // any thread, see there
  os::Mapping mapping;
  // Made by the first call that wants it, owned; any thread.
  std::atomic<const os::Mapping*> copy_on_write{nullptr};
  Gate gate;                                   // between demand() and warmers; any thread
  std::atomic<std::uint64_t> locked_bytes{0};  // at the beginning of the file, by warmers
  DemandLog demand_log;                        // any thread
  CheckpointInfo info;
  SourceInfo source;    // what was opened; the file itself where `file` is a snapshot
  OpenOptions options;  // complete
  OpenStats stats;
  os::ProcessFaults faults_at_open;  // when it was done
  std::string shown_name;            // the path as it was given, escaped, for errors made later
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  TensorView view(const catalog::Catalog& catalog, const catalog::Entry& entry) const noexcept {
    const std::byte* first =
        entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.file_offset;
    return {entry.dtype, entry.rank,   catalog.dims(entry),
            first,       entry.extent, entry.flags & view_flags};
  }
  // Where `part` begins in the mapping; nullopt if it does not lie there.
  std::optional<std::uint64_t> position_of(std::span<const std::byte> part) const noexcept;
  // The first position that the guard found missing, in either mapping.
  std::optional<std::uint64_t> lost_at() const noexcept;
};

// How other parts of the library come to the state of a Checkpoint, and to one for a state.
struct Checkpoint::Access {
  static State& state(const Checkpoint& checkpoint) noexcept { return *checkpoint.state_; }
  static Checkpoint make(std::unique_ptr<State> state) noexcept {
    return Checkpoint(std::move(state));
  }
};

}  // namespace weightmap
