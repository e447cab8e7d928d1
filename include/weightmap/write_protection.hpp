// Makes read-only what somebody else in this process has mapped of a file.
//
// torch and safetensors map files privately and for writing, which nothing can ask them not to do.
// A driver that pins such memory with write intent copies every page of it. After this it lies in
// the page cache for good: nothing copies it, and a write to it raises SIGSEGV.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct WriteProtection {
  std::uint64_t mappings = 0;  // that were writable, as /proc/self/maps lists them
  std::uint64_t bytes = 0;     // of address space
  // Of these, pages that had been written to and copied before: they stay this process's own.
  std::uint64_t anonymous_bytes = 0;
};

// All writable mappings of the file, those of weightmap, too. May be called from any thread; who
// writes to the file's memory meanwhile is ended by SIGSEGV. What is mapped later is not protected.
// Fails with io if the file cannot be opened or the system refuses; then what was protected stays
// so.
WEIGHTMAP_API Result<WriteProtection> protect_mappings(const std::filesystem::path& path);

}  // namespace weightmap
