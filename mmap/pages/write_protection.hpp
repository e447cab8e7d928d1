// Makes mappings of a file that other libraries in this process have made read-only.
//
// torch and safetensors always map files private and writable. A driver that pins such memory with
// write intent copies every page of it. After this call the memory stays in the page cache: nothing
// copies it, and a write to it raises SIGSEGV.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

struct WriteProtection {
  std::uint64_t mappings = 0;  // writable mappings found in /proc/self/maps
  std::uint64_t bytes = 0;     // of address space
  // Pages among these that were written to and copied before; they stay private.
  std::uint64_t anonymous_bytes = 0;
};

// Protects all writable mappings of the file, including weightmap's. May be called from any thread;
// a thread that writes to the file's memory meanwhile gets SIGSEGV. Later mappings are not
// protected. Fails with io if the file cannot be opened or the system refuses; mappings protected
// by then stay protected.
WEIGHTMAP_API Result<WriteProtection> protect_mappings(const std::filesystem::path& path);

}  // namespace weightmap
