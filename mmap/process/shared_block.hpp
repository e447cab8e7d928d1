// Bytes that are written once and then only mapped, by many processes: a file in the user's runtime
// directory, or sealed memory that is passed on as a descriptor.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mmap/process/runtime_directory.hpp"
#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// A block as mapped, read-only. Begins at the start of a page. Unmapped by the destructor.
class SharedBlock {
 public:
  // Fails with io as open_own_file() does (os_error is ENOENT where there is no such file), or with
  // corrupt if the file is empty. A file that its owner cuts short afterwards raises SIGBUS:
  // publish_block() never does that, it replaces.
  static Result<SharedBlock> open(const RuntimeDirectory& directory, const std::string& name);
  // The same for the runtime directory, as find_own_file() finds it.
  static Result<SharedBlock> find(const std::string& name);
  // Of a descriptor that seal_block() made, which may be closed afterwards. Fails with
  // invalid_argument if its content or size may still change, so nothing that was checked can.
  static Result<SharedBlock> of_sealed(int descriptor);

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(region_.get_address()), region_.get_size()};
  }

 private:
  static Result<SharedBlock> map(int descriptor, std::uint64_t size);
  boost::interprocess::mapped_region region_;
};

// What a block is put together from.
using BlockParts = std::span<const std::span<const std::byte>>;

// Writes a new file and gives it this name in one step; what had the name stays with those who have
// it mapped. What a process that is killed meanwhile can leave is as NewFile says. Fails with io,
// and then leaves nothing.
Result<void> publish_block(const RuntimeDirectory& directory, const std::string& name,
                           BlockParts parts);

// Memory that nobody can change any more, as a close-on-exec descriptor.
Result<UniqueFd> seal_block(BlockParts parts);

void remove_block(const RuntimeDirectory& directory, const std::string& name) noexcept;

}  // namespace weightmap::os
