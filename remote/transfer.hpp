// One request of libcurl and its answer.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

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
const char* words_of(CURLcode code) noexcept;
// No server was found, or none that listens: asked for once more at most.
bool is_out_of_reach(CURLcode code) noexcept;
// True for failures that another request may not meet.
bool is_transient(CURLcode code) noexcept;

}  // namespace weightmap::remote
