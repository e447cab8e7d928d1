// What a Checkpoint holds.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "mmap/file.hpp"
#include "mmap/huge_pages.hpp"
#include "mmap/mapping.hpp"
#include "runtime/catalog/catalog.hpp"
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
  CheckpointInfo info;
  OpenStats stats;
  std::string file_name;  // the path, escaped, for errors made later

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
  std::string describe_path(const catalog::Entry& entry) const;
};

}  // namespace weightmap
