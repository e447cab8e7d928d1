// The files of small sets, and their index.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/failures.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::test {

// Names of tensors, and the bytes that each consists of.
using Tensors = std::vector<std::pair<std::string, std::string>>;

inline std::string framed(const std::string& header, const std::string& payload) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 4; ++i) length[i] = static_cast<char>(header.size() >> 8 * i);
  return length + header + payload;
}

inline std::string safetensors(const Tensors& tensors) {
  std::string header = "{", payload;
  for (const auto& [name, bytes] : tensors) {
    header += (header.size() == 1 ? "\"" : ",\"") + name + R"(":{"dtype":"U8","shape":[)" +
              std::to_string(bytes.size()) + R"(],"data_offsets":[)" +
              std::to_string(payload.size()) + "," + std::to_string(payload.size() + bytes.size()) +
              "]}";
    payload += bytes;
  }
  return framed(header + "}", payload);
}

inline std::string torch_zip(const Tensors& tensors) {
  CheckpointWriter writer;
  std::vector<Value> items;
  for (const auto& [name, bytes] : tensors) {
    const std::int64_t size = static_cast<std::int64_t>(bytes.size());
    const std::int64_t stride = 1;
    items.push_back(writer.values().string(name));
    items.push_back(
        writer.tensor(writer.add_storage(RecordContent::text(bytes)),
                      {.dtype = DType::uint8, .sizes = {&size, 1}, .strides = {&stride, 1}}));
  }
  std::string text;
  const Value root = writer.ordered_dict(items);
  REQUIRE_OK(std::move(writer).write(root, [&text](std::span<const std::byte> part) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Result<void>();
  }));
  return text;
}

// Pairs of a tensor and its file.
inline std::string index_of(const Tensors& weight_map) {
  std::string text = R"({"metadata": {"total_size": 1}, "weight_map": {)";
  for (const auto& [tensor, file] : weight_map)
    text += (text.back() == '{' ? "\"" : ", \"") + tensor + "\": \"" + file + '"';
  return text + "}}";
}

// Puts another file into the place of this one.
inline void replace(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::path beside = path;
  beside += ".new";
  std::ofstream(beside, std::ios::binary) << content;
  std::filesystem::rename(beside, path);
}

}  // namespace weightmap::test
