// Slots of memory that processes share by a name, each used by one process at a time.
//
// A file in /dev/shm with mode 0600. Its locks are those of open file descriptions (F_OFD_SETLK),
// one byte for each slot: the system takes them back from a process that ends in whatever way, and
// two users in one process keep apart, too. All who have the file open hold one more lock together,
// so that the last one knows that it is the last.
#pragma once

#include <sys/types.h>

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

class SharedSlots {
 public:
  // Makes the file if nobody has it open, with all of its memory, so that using it raises no
  // signal; what was left by those who were killed is taken over. Fails with invalid_argument for a
  // name that shared_path() refuses, what is no regular file of this user, or slots of another size
  // or number that are in use; with io if the system refuses, or has no room.
  static Result<SharedSlots> open(const std::string& name, std::size_t slots,
                                  std::uint64_t slot_bytes);
  SharedSlots(SharedSlots&&) noexcept = default;
  SharedSlots& operator=(SharedSlots&&) = delete;
  // Removes the file if nobody else has it open. In a forked child, which has the parent's locks
  // with its descriptor, it does not.
  ~SharedSlots();

  // All of them, one behind the other.
  std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(mapped_.get_address()), mapped_.get_size()};
  }
  // Never waits. false: somebody else has it. A slot that this one has, it gets again.
  bool try_lock(std::size_t slot) const noexcept;
  void unlock(std::size_t slot) const noexcept;

 private:
  SharedSlots(std::filesystem::path path, UniqueFd file) noexcept;
  // false: the file went away, or whoever made it failed; it is to be opened again.
  Result<bool> join(std::uint64_t bytes) const;
  Result<void> map(std::uint64_t bytes);
  bool has_name() const noexcept;  // path_ still leads to the file

  std::filesystem::path path_;
  pid_t owner_;
  UniqueFd file_;  // -1: moved from
  boost::interprocess::mapped_region mapped_;
};

}  // namespace weightmap::os
