// Ways to read a checkpoint, by the names that --engines takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// How an engine of this program comes to the bytes.
enum class Way : std::uint8_t {
  map,     // maps the file, and faults
  warm,    // the same, with a Warmer
  copy,    // copies the whole file into memory of its own first
  direct,  // reads past the page cache into two buffers: what the disk can do
};

struct NativeEngine {
  std::string_view name;
  std::string_view title;
  Way way = Way::map;
  bool huge_pages = true;  // of map
  bool window = false;     // of warm: within the memory there is, dropping what has been read
};

// nullptr if there is none of this name.
const NativeEngine* find_native(std::string_view name) noexcept;

// Which format an engine takes.
enum class Reads : std::uint8_t {
  any,
  torch,        // one file that torch.load() reads
  safetensors,  // or a conversion of a torch file to it
  gguf,
  dcp,
};

struct BenchEngine : Engine {
  const NativeEngine* native = nullptr;  // nullptr: one of the Python program's
  Reads reads = Reads::any;
};

// Names of all engines, whether or not they can be measured here.
std::vector<std::string> engine_names();

// All engines. Runs `python` to hear which of its own it can measure; what cannot be measured is
// there, too, and says why not.
std::vector<BenchEngine> list_engines(const std::string& python);

}  // namespace weightmap::cli::bench
