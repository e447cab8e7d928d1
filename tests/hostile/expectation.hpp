// What the generator's manifest says about a file: how an open of it must end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weightmap::test {

enum class Verdict : std::uint8_t {
  refuse,
  open,
  either,  // both are right, but never other bytes than the right ones
};

struct Expectation {
  Verdict verdict = Verdict::refuse;
  std::string code;                // of the error: "corrupt"; empty if any will do
  std::vector<std::string> words;  // that the message must hold
  std::optional<std::uint64_t> file_offset;
};

struct Content {
  std::uint64_t nbytes = 0;
  std::uint32_t crc32 = 0;
};

struct HostileFile {
  std::string name;  // beneath the folder of the manifest
  std::filesystem::path path;
  Expectation chain;
  Expectation crc;                         // with Verify::crc
  std::map<std::string, Content> tensors;  // that must be right where they are shown
  bool all_tensors = false;                // an open shows these and no others
  bool is_huge = false;                    // a hole that nobody should read to its end
  std::uint64_t memory_bytes = 0;          // bound on what an open may take
};

// Ends the process with a message if the manifest cannot be read.
std::vector<HostileFile> read_manifest(const std::filesystem::path& manifest);

}  // namespace weightmap::test
