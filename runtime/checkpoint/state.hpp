// What a Checkpoint holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mmap/file.hpp"
#include "mmap/huge_pages.hpp"
#include "mmap/mapping.hpp"
#include "mmap/process_faults.hpp"
#include "runtime/bytes/source.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/pickle/tree.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

struct Checkpoint::State {
  // Order matters: what comes later may point into what comes before.
  os::HugePageResource memory;
  os::File file;  // a snapshot of what was opened, if that was asked for
  std::unique_ptr<pickle::Tree> tree;
  catalog::Catalog catalog;
  os::Mapping mapping;
  // The node of the pickle that each tensor is, in the order of `position`.
  struct Node {
    std::uint32_t position;
    std::uint32_t tensor;
  };
  std::pmr::vector<Node> nodes{&memory};
  bytes::MemorySource memory_source{{}};  // the mapping, if that is a copy
  mutable std::mutex copy_on_write_mutex;
  os::Mapping copy_on_write;              // on demand; under the mutex
  std::atomic<std::uint32_t> demands{0};  // how many threads wait in demand()
  DemandLog demand_log{catalog};
  CheckpointInfo info;
  // What was opened, and how: for whoever asks whether it is still there.
  Generation generation;
  std::filesystem::path opened_path;  // absolute; empty: opened by descriptor
  OpenOptions options;                // complete
  OpenStats stats;
  os::ProcessFaults faults_at_open;  // when it was done
  std::string file_name;             // the path, escaped, for errors made later

  explicit State(os::File opened) : file(std::move(opened)), generation(file.generation()) {}

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  TensorView view(const catalog::Entry& entry) const noexcept {
    const std::byte* first =
        entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.file_offset;
    return {entry.dtype, entry.rank,   catalog.dims(entry),
            first,       entry.extent, entry.flags & view_flags};
  }
  // The content as it is mapped, without touching the mapping: a copy in memory is its own source.
  const bytes::Source& source() const noexcept {
    return info.protection == Protection::copy ? static_cast<const bytes::Source&>(memory_source)
                                               : file;
  }
  // The first offset that the guard found missing, in either mapping.
  std::optional<std::uint64_t> lost_at() const noexcept;
  // Where `part` begins in the mapping; nullopt if it does not lie there.
  std::optional<std::uint64_t> offset_of(std::span<const std::byte> part) const noexcept;
  bool has_path(const catalog::Entry& entry, std::span<const PathPart> path) const noexcept;
  std::uint32_t find_path(std::span<const PathPart> path) const;  // Catalog::none: there is none
  std::string describe_path(const catalog::Entry& entry) const;
};

struct Checkpoint::Access {
  using State = Checkpoint::State;
  static State& state(const Checkpoint& checkpoint) noexcept { return *checkpoint.state_; }
  // The rest of an open, once the file is there. `name` is for errors; `options` are complete.
  static Result<Checkpoint> open(os::File file, const std::filesystem::path& name,
                                 const OpenOptions& options);
};

}  // namespace weightmap
