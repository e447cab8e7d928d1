// The Unix socket on which a daemon is asked.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// hold.sock in the runtime directory.
Result<std::filesystem::path> default_socket_path();

// Listens from its making to its destruction, which removes the socket file.
class HoldSocket {
 public:
  // With mode 0600. What a killed daemon left there is replaced. Fails with io if a daemon answers
  // there already, if something that is no socket is there, or if the system refuses.
  static Result<HoldSocket> listen(const std::filesystem::path& path);

  HoldSocket(HoldSocket&&) noexcept = default;
  HoldSocket& operator=(HoldSocket&&) = delete;
  ~HoldSocket();

  int descriptor() const noexcept { return descriptor_.get(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  struct Accepted {
    Descriptor client;     // of this user, or root; -1: none
    int error_number = 0;  // why a client that waits could not be accepted; 0: no client waits
  };
  // Does not wait.
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

// Connected to the daemon that listens there. Fails with io if none does.
Result<Descriptor> connect_to_keeper(const std::filesystem::path& path);

}  // namespace weightmap::cli::hold
