// Keeps SIGPIPE from this thread, which writing to a closed connection raises where TLS writes
// without MSG_NOSIGNAL. One that came meanwhile is taken; the process's handler is not touched.
#pragma once

#include <signal.h>

#include <ctime>

namespace weightmap::remote {

class BlockedSigpipe {
 public:
  BlockedSigpipe() noexcept {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  BlockedSigpipe(const BlockedSigpipe&) = delete;
  BlockedSigpipe& operator=(const BlockedSigpipe&) = delete;
  ~BlockedSigpipe() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

}  // namespace weightmap::remote
