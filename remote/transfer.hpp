// Requests of libcurl and their answers, and what a thread needs to run them.
#pragma once

#include <curl/curl.h>
#include <signal.h>

#include <chrono>
#include <cstddef>
#include <ctime>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remote/answer.hpp"
#include "remote/place.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

using Clock = std::chrono::steady_clock;

inline constexpr unsigned most_redirects = 5;  // in a row

// The transfers on their way, and the connections that are kept for the next ones.
class Transfers {
 public:
  Transfers();
  CURLM* get() const noexcept { return multi_.get(); }

 private:
  struct End {
    void operator()(CURLM* multi) const noexcept { curl_multi_cleanup(multi); }
  };
  std::unique_ptr<CURLM, End> multi_;
};

// One request and its answer.
class Transfer {
 public:
  // Begins. `fresh`: on a connection of its own, not on a kept one. Ended by the destructor.
  Transfer(Transfers& transfers, const RequestHead& head, bool fresh,
           std::chrono::milliseconds connect_timeout);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  virtual ~Transfer();

  const Answer& answer() const noexcept { return answer_; }
  // When the last byte came, of header or body, or the transfer began.
  Clock::time_point last_byte() const noexcept { return last_byte_; }
  // The server's Retry-After; 0 if there is none.
  std::chrono::seconds retry_after() const noexcept;
  // Throws bad_alloc if a callback ran out of memory, which must not pass through libcurl.
  void check_memory() const;
  // Fails if this has ended with `code` for a header that has no end.
  Result<void> check_header(CURLcode code) const;

  // Of a handle that libcurl reports.
  static Transfer& of(CURL* handle) noexcept;

 protected:
  // Takes bytes of the body; false ends the transfer.
  virtual bool take(std::span<const std::byte> bytes) = 0;

 private:
  struct EasyEnd {
    void operator()(CURL* easy) const noexcept { curl_easy_cleanup(easy); }
  };
  struct ListEnd {
    void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
  };
  static std::size_t on_header(char* text, std::size_t one, std::size_t length,
                               void* self) noexcept;
  static std::size_t on_body(char* text, std::size_t one, std::size_t length, void* self) noexcept;
  void set_options(const RequestHead& head, bool fresh, std::chrono::milliseconds connect_timeout);

  Transfers& transfers_;
  std::unique_ptr<CURL, EasyEnd> easy_;
  std::unique_ptr<curl_slist, ListEnd> headers_;
  Answer answer_;
  std::size_t header_bytes_ = 0;
  bool has_header_ = false;  // all of it
  Clock::time_point last_byte_;
  bool is_out_of_memory_ = false;
};

// True if libcurl here can sign for S3 as S3 wants it.
bool can_sign() noexcept;
// What has failed, for a message.
std::string words_of(CURLcode code);
// No server was found, or none that listens: asked for again only if it has answered before.
bool is_out_of_reach(CURLcode code) noexcept;
// True for failures that another request may not meet.
bool is_transient(CURLcode code) noexcept;

// The transfers of sources of one folder, which use one another's connections: as many as are in
// use at a time. Any thread.
class TransferPool {
 public:
  // Transfers that nobody else has, until this ends.
  class Use {
   public:
    explicit Use(TransferPool& pool) : pool_(pool), transfers_(pool.take()) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { pool_.give_back(std::move(transfers_)); }
    Transfers& get() const noexcept { return *transfers_; }

   private:
    TransferPool& pool_;
    std::unique_ptr<Transfers> transfers_;
  };

 private:
  std::unique_ptr<Transfers> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      ++made_;
      idle_.reserve(made_);
      return std::make_unique<Transfers>();
    }
    std::unique_ptr<Transfers> last = std::move(idle_.back());
    idle_.pop_back();
    return last;
  }
  void give_back(std::unique_ptr<Transfers> transfers) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(transfers));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Transfers>> idle_;
  std::size_t made_ = 0;
};

// Keeps SIGPIPE from this thread, which writing to a closed connection raises where TLS writes
// without MSG_NOSIGNAL. One that came meanwhile is taken; the process's handler is not touched.
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
