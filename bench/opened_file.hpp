// What every stage of an open leaves behind for the next one, so that each can be run alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "mmap/file.hpp"
#include "mmap/memory/huge_pages.hpp"
#include "runtime/bytes/windows.hpp"
#include "runtime/pickle/parse.hpp"
#include "runtime/torch/read_tensors.hpp"
#include "runtime/value/tree.hpp"
#include "runtime/zip/directory.hpp"
#include "runtime/zip/storage_offsets.hpp"
#include "weightmap/result.hpp"

namespace weightmap::bench {

struct OpenedFile {
  // Fails with corrupt if the file has not exactly `tensors` tensors.
  static Result<std::unique_ptr<OpenedFile>> open(const std::filesystem::path& path,
                                                  std::uint64_t tensors);

  // Order matters: what comes later may point into what comes before.
  os::HugePageResource memory;
  os::File file;
  bytes::Windows windows;  // has all that the stages read
  zip::Directory directory;
  zip::LocateOptions locate;
  std::uint64_t pickle_offset = 0;  // in the file
  std::unique_ptr<value::Tree> tree;
  std::uint32_t first_mark = 0;
  std::optional<torch::TensorTable> table;
  std::optional<std::pmr::vector<zip::StorageExtent>> extents;

  // For the next walk through the tree, to which the marks of those before count for nothing.
  std::uint32_t next_mark() noexcept;

 private:
  explicit OpenedFile(os::File opened) : file(std::move(opened)), windows(file, memory) {}
  Result<void> read_archive();
  Result<void> read_pickle();
  Result<void> place_tensors();
};

// As an open sets them.
pickle::ParseLimits parse_limits(std::uint64_t pickle_bytes) noexcept;

}  // namespace weightmap::bench
