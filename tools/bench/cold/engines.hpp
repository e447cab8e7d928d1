// The engines of a benchmark, by their names in --engines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

// How an engine of this program reads the bytes.
enum class Way : std::uint8_t {
  map,     // maps the file, and faults pages in
  warm,    // the same, with a Warmer
  copy,    // copies the whole file into memory of its own first
  direct,  // reads past the page cache into two buffers, as fast as the disk can
};

struct NativeEngine {
  std::string_view name;
  std::string_view title;
  Way way = Way::map;
  bool huge_pages = true;  // of map
  bool window = false;     // for warm: within the available memory, dropping used pages
};

// Returns nullptr if there is none of this name.
const NativeEngine* find_native(std::string_view name) noexcept;

// The format that an engine reads.
enum class Reads : std::uint8_t {
  any,
  torch,        // one file for torch.load()
  safetensors,  // or the conversion of a torch file
};

struct BenchEngine : Engine {
  const NativeEngine* native = nullptr;  // nullptr: an engine of the Python program
  Reads reads = Reads::any;
};

// Returns python_engines.py, which runs the engines of other libraries, for `python -c`.
std::string_view python_source() noexcept;

// Returns the names of all engines, even those that cannot be measured here.
std::vector<std::string> engine_names();

// Returns all engines. Runs `python` to find out which of its engines can be measured; the others
// are included with the reason.
std::vector<BenchEngine> list_engines(const std::string& python);

}  // namespace weightmap::cli::bench
