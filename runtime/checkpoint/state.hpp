// What a Checkpoint holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "mmap/file.hpp"
#include "mmap/huge_pages.hpp"
#include "mmap/mapping.hpp"
#include "mmap/process_faults.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/pickle/tree.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

struct Checkpoint::State {
  // Order matters: what comes later may point into what comes before.
  os::HugePageResource memory;
  os::File file;
  std::unique_ptr<pickle::Tree> tree;
  catalog::Catalog catalog;
  os::Mapping mapping;
  // The node of the pickle that each tensor is, in the order of `position`.
  struct Node {
    std::uint32_t position;
    std::uint32_t tensor;
  };
  std::pmr::vector<Node> nodes{&memory};
  std::mutex copy_on_write_mutex;
  os::Mapping copy_on_write;              // on demand; under the mutex
  std::atomic<std::uint32_t> demands{0};  // how many threads wait in demand()
  DemandLog demand_log{catalog};
  CheckpointInfo info;
  OpenStats stats;
  os::ProcessFaults faults_at_open;  // when it was done
  std::string file_name;             // the path, escaped, for errors made later

  explicit State(os::File opened) : file(std::move(opened)) {}

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  TensorView view(const catalog::Entry& entry) const noexcept {
    const std::byte* first =
        entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.file_offset;
    return {entry.dtype, entry.rank,   catalog.dims(entry),
            first,       entry.extent, entry.flags & view_flags};
  }
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
