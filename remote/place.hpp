// Where a file can be asked for: its store, or a peer that has a copy.
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
};

class Place {
 public:
  // The store. `given` is what a signer gets; `home` is requested where there is none.
  Place(std::string given, Url home, std::vector<std::string> headers, Signer signer,
        std::optional<S3Access> s3);
  // A peer, which gets no credentials.
  Place(Url home, Pinned pinned);

  bool is_peer() const noexcept { return peer_pin_.has_value(); }
  // Whether one more range is to be asked for here. A peer that has failed is left out for the next
  // 16 ranges, and then one is tried; unless that is answered, for twice as many, and so on. A name
  // may stand for several peers, of which one has failed.
  bool takes_range() noexcept;
  void failed() noexcept;
  bool has_failed() const noexcept { return failures_ != 0; }
  // What answers are compared with: `store`, but for a peer.
  const Pinned* pin(const Pinned* store) const noexcept { return is_peer() ? &*peer_pin_ : store; }

  // Asks the signer, the first time.
  Result<void> prepare();
  RequestHead request(const Ask& ask, const Pinned* pinned) const;
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
  void leave_out() noexcept;
  Result<void> sign(bool again);
  void add_own_headers(RequestHead& head, const Pinned* pinned) const;

  std::string given_;
  Url home_;    // before redirects
  Url target_;  // after them
  Url own_;     // user's headers and credentials are for its origin
  std::vector<std::string> headers_;
  Signer signer_;
  std::optional<S3Access> s3_;
  std::optional<Pinned> peer_pin_;
  unsigned generation_ = 0;
  unsigned failures_ = 0;           // of a peer, in a row
  std::uint64_t left_out_for_ = 0;  // ranges
  bool is_prepared_ = false;
  bool is_redirected_ = false;
  bool is_renewed_ = false;
};

}  // namespace weightmap::remote
