// A delta as a folder (weightmap/delta.hpp), read and checked, except for what its frames hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

inline constexpr const char* index_name = "model.safetensors.index.json";

struct DeltaFolder {
  struct File {
    os::File file;
    std::filesystem::path path;
  };
  struct Tensor {
    std::string name;
    std::size_t file;
    ByteRange frame;  // in it
    std::string sum;  // of the tensor once it is changed
  };

  // A folder, or the index in one. Fails with not_a_checkpoint for what is no delta, with
  // unsupported for an encoding, a compression or a sum that is unknown; with corrupt for one that
  // contradicts itself, and with io. Errors name the file.
  static Result<DeltaFolder> open(const std::filesystem::path& path, const Limits& limits);

  // Fails with io if a file was written to since it was opened, the index as well.
  Result<void> check_unchanged() const;
  // Returns the error with the tensor and its file.
  Error about(const Tensor& tensor, Error error) const;

  std::filesystem::path index;
  std::optional<os::File> index_file;  // once it is open
  std::string version;
  std::string base_version;
  DeltaEncoding encoding = DeltaEncoding::xor_bytes;
  TensorSum sum = TensorSum::xxh3_128;
  std::vector<File> files;      // without the index
  std::vector<Tensor> tensors;  // by name
  std::uint64_t bytes = 0;      // of all files
};

}  // namespace weightmap::delta
