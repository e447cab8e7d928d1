// Compares whole files of any format with their SHA-256: with lists that sha256sum writes, and with
// what the cache of huggingface_hub says. Safetensors, GGUF and torch's stream of before 1.6 have
// no checksums of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/error.hpp"
#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct FileSum {
  std::filesystem::path file;  // absolute
  std::string sha256;          // 64 lower-case digits
  std::string source;          // who says so, for error messages: "SHA256SUMS, line 3"
  std::string name = {};       // in a list
};

// Returns a line of 64 digits in lower case; empty for any other text.
WEIGHTMAP_API std::string normal_sha256(std::string_view hex);

// Reads a list as sha256sum writes and reads it, also with --tag. A name in it is a file beside the
// list, and one in the current directory. Fails with io, and with corrupt for a line that is none.
WEIGHTMAP_API Result<std::vector<FileSum>> read_sums(const std::filesystem::path& list);

// Returns what a file of the cache of huggingface_hub should hold: the name of the blob that it is
// a link to, if that has 64 digits. Small files of the cache have another name, and no sum.
WEIGHTMAP_API std::vector<FileSum> hub_sums(std::span<const std::filesystem::path> files);

struct SumReport {
  std::vector<std::filesystem::path> compared;  // of the files, those that a sum was found for
  std::uint64_t bytes = 0;                      // of them
  std::vector<Error> faults;                    // one for each that differs or could not be read
  bool cancelled = false;                       // by the caller's Progress
};

// Reads each file that `sums` have, once, and compares it with all sums of it.
WEIGHTMAP_API SumReport compare_sums(std::span<const std::filesystem::path> files,
                                     std::span<const FileSum> sums, const Progress& progress = {});

}  // namespace weightmap
