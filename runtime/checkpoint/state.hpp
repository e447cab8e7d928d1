// What a Checkpoint holds.
//
// Everything is filled in by the open, in one thread, and only read afterwards, but for the members
// that say otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mmap/mapping.hpp"
#include "mmap/memory/huge_pages.hpp"
#include "mmap/pages/process_faults.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/checkpoint/gate.hpp"
#include "runtime/checkpoint/open_sources.hpp"
#include "runtime/checkpoint/sources.hpp"
#include "runtime/format/format.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

// What the files say, and the memory that it lies in.
struct ParsedFiles {
  os::HugePageResource memory;
  format::Parsed content{memory};
};

struct Checkpoint::State {
  State(GivenFiles files, OpenOptions complete)
      : given(std::move(files.paths)),
        hub(std::move(files.hub)),
        sources(std::move(files.sources)),
        leading_files(files.leading),
        options(std::move(complete)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    delete copy_on_write.load();
    delete write_watch.load();
  }

  // See GivenFiles.
  std::vector<GivenPath> given;
  std::optional<sets::HubSnapshot> hub;
  Sources sources;
  std::size_t leading_files;
  std::unique_ptr<ParsedFiles> parsed;
  os::Mapping mapping;  // of all files
  // Made by the first call that wants it, owned; any thread.
  std::atomic<const os::Mapping*> copy_on_write{nullptr};
  std::atomic<const os::Guard*> write_watch{nullptr};  // of `mapping`; likewise
  Gate gate;                                           // between demand() and warmers; any thread
  std::atomic<std::uint64_t> locked_bytes{0};  // at the beginning of the mapping, by warmers
  DemandLog demand_log;                        // any thread
  CheckpointInfo info;
  OpenOptions options;  // complete
  OpenStats stats;
  os::ProcessFaults faults_at_open;  // when it was done
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  // Precondition: the files are parsed, as they are when the open is done.
  const format::Parsed& content() const noexcept { return parsed->content; }
  const catalog::Catalog& catalog() const noexcept { return parsed->content.catalog; }
  TensorView view(const catalog::Entry& entry) const noexcept {
    const std::byte* first = entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.position;
    const unsigned repeats =
        options.repeats == Repeats::any ? unsigned{TensorView::any_repeats} : 0;
    return {entry.dtype, entry.rank,   catalog().dims(entry),
            first,       entry.extent, (entry.flags & view_flags) | repeats};
  }
  // For errors and messages about the whole.
  const std::string& shown_name() const noexcept {
    return given.empty() ? sources.front().shown_name : given.front().shown;
  }
  // Whether it was made of several files, each of which is a checkpoint of its own.
  bool is_set() const noexcept { return sources.size() > (sources.has_copies() ? 2 : 1); }
  // Where `part` begins in the mapping; nullopt if it does not lie in a file there.
  std::optional<std::uint64_t> position_of(std::span<const std::byte> part) const noexcept;
  // Whether the guard has put zeros in the place of a file, in either mapping.
  bool is_lost() const noexcept;
};

// How other parts of the library come to the state of a Checkpoint, and to one for a state.
struct Checkpoint::Access {
  static State& state(const Checkpoint& checkpoint) noexcept { return *checkpoint.state_; }
  static Checkpoint make(std::unique_ptr<State> state) noexcept {
    return Checkpoint(std::move(state));
  }
};

}  // namespace weightmap
