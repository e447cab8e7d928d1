#include "remote/small_get.hpp"

#include <random>
#include <thread>
#include <utility>

#include "remote/backoff.hpp"
#include "remote/blocked_sigpipe.hpp"
#include "remote/transfer.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

constexpr std::size_t longest_body = std::size_t{64} << 20;
constexpr int longest_wait_ms = 50;
constexpr std::chrono::milliseconds pause{20};

class Body final : public Transfer {
 public:
  using Transfer::Transfer;
  std::string text;
  bool is_too_long = false;

 private:
  bool take(std::span<const std::byte> bytes) override {
    is_too_long = text.size() + bytes.size() > longest_body;
    if (!is_too_long) text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return !is_too_long;
  }
};

bool is_busy(long status) noexcept { return status == 429 || status >= 500; }
bool is_redirect(long status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

class SmallGet {
 public:
  SmallGet(const Url& url, const RemoteOptions& options)
      : own_(url), url_(url), options_(options) {}

  Result<SmallAnswer> run() {
    const BlockedSigpipe blocked;
    for (;;) {
      RequestHead head{.url = url_.text(), .headers = {}};
      if (url_.has_origin_of(own_)) head.headers = options_.headers;
      Body body(transfers_, head, failures_ > 0, options_.stall);
      TRY_ASSIGN(const CURLcode code, transfer(body));
      body.check_memory();
      const long status = body.answer().status;
      if (body.is_too_long)
        return failure(ErrorCode::limit_exceeded, "the answer is longer than 64 MiB");
      if (code != CURLE_OK || is_busy(status)) {
        TRY(wait(code, status, body.retry_after()));
      } else if (is_redirect(status)) {
        TRY(follow(body.answer().location));
      } else {
        return SmallAnswer{status, std::move(body.text)};
      }
    }
  }

 private:
  // Until it has ended. The only one of `transfers_`.
  Result<CURLcode> transfer(const Transfer& transfer) {
    for (;;) {
      int count = 0;
      curl_multi_perform(transfers_.get(), &count);
      while (const CURLMsg* message = curl_multi_info_read(transfers_.get(), &count))
        if (message->msg == CURLMSG_DONE) return message->data.result;
      TRY(look());
      if (options_.stall.count() != 0 && Clock::now() - transfer.last_byte() > options_.stall)
        return CURLE_OPERATION_TIMEDOUT;
      curl_multi_poll(transfers_.get(), nullptr, 0, longest_wait_ms, nullptr);
    }
  }

  Result<void> look() const {
    if (options_.goes_on && !options_.goes_on()) return failure(ErrorCode::cancelled, "cancelled");
    const Clock::time_point now = Clock::now();
    const bool is_late = (options_.deadline.count() != 0 && now - began_ > options_.deadline) ||
                         (options_.until != Clock::time_point() && now > options_.until);
    if (!is_late) return {};
    return failure(ErrorCode::io, last_.empty()
                                      ? std::string("the deadline has passed")
                                      : "the deadline has passed; the last answer was " + last_);
  }

  Result<void> wait(CURLcode code, long status, std::chrono::seconds asked) {
    const std::string why = code == CURLE_OK ? "HTTP " + std::to_string(status) : words_of(code);
    if (code != CURLE_OK && !is_transient(code)) return failure(ErrorCode::io, why);
    if (is_out_of_reach(code) && failures_ == 1) return failure(ErrorCode::io, why + ", twice");
    if (++failures_ > options_.retries)
      return failure(ErrorCode::io, why + ", after " + std::to_string(failures_) + " requests");
    last_ = why;
    const Clock::time_point end =
        Clock::now() + backoff(failures_, static_cast<std::uint32_t>(random_()), asked);
    for (; Clock::now() < end; std::this_thread::sleep_for(pause)) TRY(look());
    return {};
  }

  Result<void> follow(const std::string& location) {
    if (++redirects_ > most_redirects)
      return failure(ErrorCode::io,
                     "the server redirects more than " + std::to_string(most_redirects) + " times");
    TRY_ASSIGN(url_, url_.redirected(location));
    return {};
  }

  const Url& own_;
  Url url_;
  const RemoteOptions& options_;
  Transfers transfers_;
  std::random_device random_;
  const Clock::time_point began_ = Clock::now();
  std::string last_;  // answer, if it was none
  unsigned failures_ = 0;
  unsigned redirects_ = 0;
};

}  // namespace

Result<SmallAnswer> get_small(const Url& url, const RemoteOptions& options) {
  return SmallGet(url, options).run();
}

}  // namespace weightmap::remote
