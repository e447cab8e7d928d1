// What tests write: tensors of one dimension, each over a whole storage; and whether the sums of a
// file are right.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "weightmap/archive.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::test {

inline Value flat_tensor(CheckpointWriter& writer, std::size_t storage, std::uint64_t elements,
                         DType dtype = DType::float32) {
  const std::array sizes{static_cast<std::int64_t>(elements)};
  const std::array<std::int64_t, 1> strides{1};
  return writer.tensor(storage, {.dtype = dtype, .sizes = sizes, .strides = strides});
}

// Over a new storage of this content.
inline Value flat_tensor(CheckpointWriter& writer, RecordContent content,
                         DType dtype = DType::float32) {
  const std::uint64_t elements = content.size() / element_size(dtype);
  return flat_tensor(writer, writer.add_storage(std::move(content)), elements, dtype);
}

inline std::vector<std::string> bad_checksums(const std::filesystem::path& path) {
  std::vector<std::string> bad;
  const ArchiveReader archive = ArchiveReader::open(path).value();
  for (const ArchiveReader::RecordInfo& record : archive.records())
    if (!archive.verify_crc(record.name).value_or(false)) bad.emplace_back(record.name);
  return bad;
}

}  // namespace weightmap::test
