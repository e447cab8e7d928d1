// The state of a Checkpoint.
//
// One thread fills it in during the open; then it is read-only, except members that say otherwise.
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

#include "mmap/closed_range.hpp"
#include "mmap/mapping.hpp"
#include "mmap/memory/huge_pages.hpp"
#include "mmap/pages/process_faults.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/range_set.hpp"
#include "runtime/base/catalog/listed_tensors.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/checkpoint/gate.hpp"
#include "runtime/checkpoint/open_sources.hpp"
#include "runtime/checkpoint/sources.hpp"
#include "runtime/checkpoint/tensor_table.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/system/memory/lock_share.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

// The parsed content of the files, and its memory.
struct ParsedFiles {
  mmap::HugePageResource memory;
  format::Parsed content{memory};
};

struct Checkpoint::State {
  State(GivenFiles files, OpenOptions complete)
      : owner(std::move(files.owner)),
        given(std::move(files.paths)),
        hub(std::move(files.hub)),
        sources(std::move(files.sources)),
        leading_files(files.leading),
        view_memory(files.view_memory),
        not_opened(std::move(files.not_opened)),
        options(std::move(complete)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    delete copy_on_write.load();
    delete write_watch.load();
    delete late_values.load();
    if (view_memory == ViewMemory::mapped && !mapping.bytes().empty())
      mmap::close(std::move(mapping), shown_name());
  }

  // See GivenFiles. The owner goes last, as all else may refer to its memory.
  std::shared_ptr<const void> owner;
  std::vector<GivenPath> given;
  std::optional<sets::HubSnapshot> hub;
  Sources sources;
  std::size_t leading_files;
  ViewMemory view_memory;
  std::vector<std::string> not_opened;
  std::unique_ptr<ParsedFiles> parsed;
  TensorTable tensors;    // of `parsed`, whose own catalog is empty
  mmap::Mapping mapping;  // of all files
  // Owned; made by the first call that needs it; any thread.
  std::atomic<const mmap::Mapping*> copy_on_write{nullptr};
  std::atomic<const mmap::Guard*> write_watch{nullptr};     // of `mapping`; likewise
  std::atomic<const format::Values*> late_values{nullptr};  // likewise
  Gate gate;                                    // between demand() and warmers; any thread
  os::LockShare lock_share;                     // of `mapping`, by warmers; any thread
  DemandLog demand_log;                         // any thread
  os::ForkSafe<bytes::RangeSet> random_access;  // positions; see advise(); any thread
  CheckpointInfo info;
  OpenOptions options;  // complete
  OpenStats stats;
  mmap::ProcessFaults faults_at_open;  // at the end of the open
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  // Precondition: the files are parsed, which holds once the open is done.
  const format::Parsed& content() const noexcept { return parsed->content; }
  catalog::ListedTensors listed() const noexcept { return tensors.listed(); }
  // The catalog with the places of all tensors, of which late ones are proven here.
  Result<const catalog::Catalog*> placed() const;
  // Returns the number of the tensor of this name; fails as Checkpoint::get() does.
  Result<std::uint32_t> index_of(std::string_view name) const;
  TensorView view(std::size_t index) const noexcept { return view(index, tensors.at(index)); }
  TensorView view(std::size_t index, const TensorPlace& place) const noexcept {
    if (place.fault != nullptr) [[unlikely]] {
      const catalog::ListedTensors all = listed();
      return TensorView::without_bytes(all.dtype(index), all.sizes(index).size(), all.dims(index),
                                       *place.fault);
    }
    const catalog::Entry& entry = *place.entry;
    const std::byte* first = entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.position;
    const unsigned repeats =
        options.repeats == Repeats::any ? unsigned{TensorView::any_repeats} : 0;
    return {entry.dtype, entry.rank,   place.catalog->dims(entry),
            first,       entry.extent, (entry.flags & view_flags) | repeats};
  }
  // The name of the whole in errors and messages.
  const std::string& shown_name() const noexcept {
    return given.empty() ? sources.front().shown_name : given.front().shown;
  }
  // True if there is no file, but the memory of Checkpoint::open_memory().
  bool is_in_memory() const noexcept { return view_memory == ViewMemory::given; }
  // True if it was made of several files, each a checkpoint of its own.
  bool is_set() const noexcept { return sources.size() > (sources.has_copies() ? 2 : 1); }
  // Returns the place of `part` in the mapping; nullopt if it is not in one of the files.
  std::optional<std::uint64_t> position_of(std::span<const std::byte> part) const noexcept;
  // Sets it for the pages of a range in one of the files, in both mappings. Any thread.
  Result<void> advise(ByteRange range, weightmap::Access how);
  // See advise() of on_demand.hpp.
  Result<void> advise(const TensorView& view, weightmap::Access how);
  // Sets it for all else of a mapping of the files. Any thread.
  void allow_readahead(const mmap::Mapping& of, bool allowed);
  // Returns the parts of a range that are not Access::random. Any thread.
  std::vector<ByteRange> not_random(ByteRange range);
  // Fails with unsupported if the bytes of the views are not there.
  Result<void> check_view_memory() const;
  // True if the guard has replaced a file with zeros, in either mapping.
  bool is_lost() const noexcept;
};

// Gives other parts of the library access to the state of a Checkpoint, and makes one from a state.
struct Checkpoint::Access {
  static State& state(const Checkpoint& checkpoint) noexcept { return *checkpoint.state_; }
  static Checkpoint make(std::unique_ptr<State> state) noexcept {
    return Checkpoint(std::move(state));
  }
};

}  // namespace weightmap
