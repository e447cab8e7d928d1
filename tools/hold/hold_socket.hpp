// The Unix socket of a daemon.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Returns hold.sock in the runtime directory.
Result<std::filesystem::path> default_socket_path();

// Listens during its lifetime; the destructor removes the socket file.
class HoldSocket {
 public:
  // Creates the socket with mode 0600, and replaces one that a killed daemon left behind. Fails
  // with io if a daemon answers there already, if the path is no socket, or the system refuses.
  static Result<HoldSocket> listen(const std::filesystem::path& path);

  HoldSocket(HoldSocket&&) noexcept = default;
  HoldSocket& operator=(HoldSocket&&) = delete;
  ~HoldSocket();

  int descriptor() const noexcept { return descriptor_.get(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  struct Accepted {
    Descriptor client;     // of this user or root; -1: none
    int error_number = 0;  // why a waiting client could not be accepted; 0: no client waits
  };
  // Does not block.
  Accepted accept() const noexcept;

 private:
  HoldSocket(Descriptor descriptor, std::filesystem::path path, dev_t device, ino_t inode)
      : descriptor_(std::move(descriptor)),
        path_(std::move(path)),
        device_(device),
        inode_(inode) {}

  Descriptor descriptor_;
  std::filesystem::path path_;
  dev_t device_;
  ino_t inode_;
};

// Connects to the daemon that listens there. Fails with io if none does, or if it is neither this
// user's nor root's.
Result<Descriptor> connect_to_keeper(const std::filesystem::path& path);

}  // namespace weightmap::cli::hold
