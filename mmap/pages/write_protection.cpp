#include "mmap/pages/write_protection.hpp"

#include <sys/mman.h>

#include "mmap/pages/process_maps.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap {
namespace {

// Fails with io if the system refuses, or if the area is not mapped any more.
Result<void> protect(const mmap::MappedArea& area) {
  const int protection = area.executable ? PROT_READ | PROT_EXEC : PROT_READ;
  if (::mprotect(reinterpret_cast<void*>(area.begin), area.end - area.begin, protection) == 0)
    return {};
  return os::os_failure("make a mapping read-only");
}

Result<WriteProtection> protect_mappings_of(const os::File& file) {
  TRY_ASSIGN(const mmap::MappedArea found, mmap::area_of(file));
  const auto areas = mmap::areas_of_this_process([&](const mmap::MappedArea& area) {
    return area.writable && area.inode == found.inode && area.device == found.device;
  });
  if (!areas) return failure(ErrorCode::io, "cannot read what this process has mapped");
  WriteProtection protection;
  for (const mmap::ProcessArea& one : *areas) {
    TRY(protect(one.area));
    ++protection.mappings;
    protection.bytes += one.area.end - one.area.begin;
    protection.anonymous_bytes += one.memory.anonymous;
  }
  return protection;
}

}  // namespace

Result<WriteProtection> protect_mappings(const std::filesystem::path& path) {
  TRY_ASSIGN(os::File file, about_file(os::File::open(path, false), path));
  return about_file(protect_mappings_of(file), path);
}

}  // namespace weightmap
