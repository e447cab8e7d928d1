#include "remote/whole_get.hpp"

#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "remote/pace.hpp"
#include "remote/transfer.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

constexpr std::size_t longest_small = std::size_t{64} << 20;
constexpr int longest_wait_ms = 50;
constexpr std::chrono::milliseconds pause{20};
constexpr long http_ok = 200;

class BodyTransfer final : public Transfer {
 public:
  BodyTransfer(Transfers& transfers, const RequestHead& head, bool fresh,
               std::chrono::milliseconds connect_timeout, Body& body, RangeCounts& counts)
      : Transfer(transfers, head, fresh, connect_timeout), body_(body), counts_(counts) {
    ++counts_.requests;
  }

  // Also of a body without bytes.
  Result<void> begin() {
    if (std::exchange(has_begun_, true) || answer().status != http_ok) return {};
    return body_.begins(answer());
  }
  const std::optional<Error>& refusal() const noexcept { return refusal_; }

 private:
  bool take(std::span<const std::byte> bytes) override {
    if (answer().status != http_ok) return true;
    counts_.bytes += bytes.size();
    Result<void> taken = begin();
    if (taken) taken = body_.take(bytes);
    if (!taken) refusal_ = std::move(taken.error());
    return !refusal_;
  }

  Body& body_;
  RangeCounts& counts_;
  bool has_begun_ = false;
  std::optional<Error> refusal_;
};

bool is_busy(long status) noexcept { return status == 429 || (status >= 500 && status != 501); }
bool is_redirect(long status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

class WholeGet {
 public:
  // `sum_of`: asks for no body, but for the checksum of this version; nullptr for all of the file.
  WholeGet(Place& place, const Pinned* sum_of, const RemoteOptions& options, Body& body,
           RangeCounts& counts)
      : place_(place),
        sum_of_(sum_of),
        options_(options),
        body_(body),
        counts_(counts),
        has_answered_(sum_of != nullptr) {}

  Result<Answer> run() {
    const BlockedSigpipe blocked;
    TRY(place_.prepare());
    for (;;) {
      BodyTransfer body(transfers_, request(), failures_ > 0, options_.stall, body_, counts_);
      TRY_ASSIGN(const CURLcode code, transfer(body));
      body.check_memory();
      if (body.refusal()) return tl::unexpected<Error>(*body.refusal());
      TRY(body.check_header(code));
      const long status = body.answer().status;
      has_answered_ = has_answered_ || status != 0;
      if (code != CURLE_OK || is_busy(status)) {
        TRY(wait(code, status, body.retry_after()));
      } else if (is_redirect(status)) {
        TRY(follow(body.answer().location));
      } else {
        TRY(body.begin());
        return body.answer();
      }
    }
  }

 private:
  RequestHead request() const {
    return sum_of_ == nullptr ? place_.request_whole() : place_.request_sum(*sum_of_);
  }

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
    if (is_out_of_reach(code) && !has_answered_) return failure(ErrorCode::io, why);
    if (++failures_ > options_.retries)
      return failure(ErrorCode::io, why + ", after " + std::to_string(failures_) + " requests");
    ++counts_.retries;
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
    return place_.follow(place_.generation(), location);
  }

  Place& place_;
  const Pinned* const sum_of_;
  const RemoteOptions& options_;
  Body& body_;
  RangeCounts& counts_;
  Transfers transfers_;
  std::random_device random_;
  const Clock::time_point began_ = Clock::now();
  std::string last_;   // answer, if it was none
  bool has_answered_;  // here, or before
  unsigned failures_ = 0;
  unsigned redirects_ = 0;
};

class SmallBody final : public Body {
 public:
  std::string text;

 private:
  Result<void> begins(const Answer&) override {
    text.clear();
    return {};
  }
  Result<void> take(std::span<const std::byte> bytes) override {
    if (text.size() + bytes.size() > longest_small)
      return failure(ErrorCode::limit_exceeded, "the answer is longer than 64 MiB");
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
};

}  // namespace

Result<Answer> get_whole(Place& place, const RemoteOptions& options, Body& body,
                         RangeCounts& counts) {
  return WholeGet(place, nullptr, options, body, counts).run();
}

Result<Answer> get_sum(Place& place, const Pinned& pinned, const RemoteOptions& options,
                       RangeCounts& counts) {
  SmallBody none;
  return WholeGet(place, &pinned, options, none, counts).run();
}

Result<SmallAnswer> get_small(const Url& url, const RemoteOptions& options) {
  Place place(url.text(), url, options.headers, {}, {});
  SmallBody body;
  RangeCounts uncounted;
  TRY_ASSIGN(const Answer answer, get_whole(place, options, body, uncounted));
  return SmallAnswer{answer.status, std::move(body.text)};
}

}  // namespace weightmap::remote
