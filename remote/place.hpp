// Where a file can be asked for: its store.
//
//   Unsigned ──prepare──▶ Home ──follow──▶ Redirected ──follow──▶ Redirected
//                          ▲  │                │
//                          └──┴─── renew ──────┘   the signer is asked again, or the way is
//                                                  gone anew; once between two answers
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remote/judgement.hpp"
#include "remote/s3.hpp"
#include "remote/url.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

using Signer = std::function<Result<std::string>(const std::string& url, bool again)>;

// One request, ready for libcurl.
struct RequestHead {
  std::string url;
  std::vector<std::string> headers;
  std::string user = {};
  std::string password = {};
  std::string sigv4 = {};  // libcurl's CURLOPT_AWS_SIGV4; empty: not signed
  bool wants_body = true;
};

class Place {
 public:
  // `given` is what a signer gets; `home` is requested where there is none.
  Place(std::string given, Url home, std::vector<std::string> headers, Signer signer,
        std::optional<S3Access> s3);

  // Asks the signer, the first time.
  Result<void> prepare();
  RequestHead request(const Ask& ask, const Pinned* pinned) const;
  RequestHead request_whole() const;
  // Of S3, for its checksum. Of a range S3 says none, or that of parts as if it were the file's.
  RequestHead request_sum(const Pinned& pinned) const;
  // Counts the URLs that have been requested: after a redirect or a new signature it is another.
  unsigned generation() const noexcept { return generation_; }

  // All take the generation of the request: if it is not the last one, another request has seen to
  // it, and there is nothing to do.
  void answered(unsigned generation) noexcept;
  Result<void> follow(unsigned generation, const std::string& location);
  // Asks the signer again, or goes back to before a redirect. False if that has been tried since
  // the last answer, or cannot be: the file is refused.
  Result<bool> renew(unsigned generation);
  // "AWS_ACCESS_KEY_ID was used": for a refusal.
  std::string credentials() const;

 private:
  Result<void> sign(bool again);
  void add_own_headers(RequestHead& head, const Pinned* pinned) const;

  std::string given_;
  Url home_;    // before redirects
  Url target_;  // after them
  Url own_;     // user's headers and credentials are for its origin
  std::vector<std::string> headers_;
  Signer signer_;
  std::optional<S3Access> s3_;
  unsigned generation_ = 0;
  enum class At : std::uint8_t { unsigned_home, home, redirected } at_ = At::unsigned_home;
  bool was_renewed_ = false;  // since the last answer
};

}  // namespace weightmap::remote
