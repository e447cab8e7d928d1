#include <memory>
#include <utility>

#include "remote/url.hpp"
#include "remote/whole_get.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace remote {

// The hub over libcurl.
class HttpHubClient final : public HubClient {
 public:
  // Fails with invalid_argument for an endpoint that is no URL of https or http.
  static Result<std::shared_ptr<HubClient>> make(HubAccess access, RemoteOptions options);

  Result<std::string> get(const std::string& path) override;
  Result<std::unique_ptr<RangeSource>> open(const std::string& path) override;

 private:
  HttpHubClient(HubAccess access, RemoteOptions options);
  Error refused(long status, const std::string& shown) const;

  HubAccess access_;
  RemoteOptions options_;  // the token is one of the headers
};

HttpHubClient::HttpHubClient(HubAccess access, RemoteOptions options)
    : access_(std::move(access)), options_(std::move(options)) {
  if (!access_.token.empty()) options_.headers.push_back("Authorization: Bearer " + access_.token);
  options_.signer = {};  // it is about other URLs
}

Result<std::shared_ptr<HubClient>> HttpHubClient::make(HubAccess access, RemoteOptions options) {
  const auto endpoint = Url::parse(access.endpoint);
  if (!endpoint || endpoint->scheme == "file")
    return failure(ErrorCode::invalid_argument,
                   "HF_ENDPOINT is not a URL of https or http, such as https://huggingface.co");
  return std::shared_ptr<HubClient>(new HttpHubClient(std::move(access), std::move(options)));
}

// The hub answers 401 also for a model that does not exist.
Error HttpHubClient::refused(long status, const std::string& shown) const {
  const std::string http = "HTTP " + std::to_string(status);
  Error error{ErrorCode::io, http, Error::no_offset, shown};
  if (status == 404) {
    error.code = ErrorCode::not_found;
    error.message += ": the hub has no such model or revision";
  } else if (status == 401 || status == 403) {
    error.message += ": the model is gated or private, or there is none of this name; ";
    error.message += access_.token.empty()
                         ? "no token was found in HF_TOKEN, HF_TOKEN_PATH or $HF_HOME/token"
                         : "the token of " + access_.token_from + " was sent";
  }
  return error;
}

Result<std::string> HttpHubClient::get(const std::string& path) {
  TRY_ASSIGN(const Url url, Url::parse(access_.endpoint + path));
  Result<SmallAnswer> answer = get_small(url, options_);
  if (!answer) {
    answer.error().file = url.name();
    return tl::unexpected<Error>(std::move(answer.error()));
  }
  if (answer->status == 200) return std::move(answer->body);
  return tl::unexpected<Error>(refused(answer->status, url.name()));
}

Result<std::unique_ptr<RangeSource>> HttpHubClient::open(const std::string& path) {
  return open_url(access_.endpoint + path, options_);
}

}  // namespace remote

Result<std::shared_ptr<HubClient>> hub_client(const RemoteOptions& options) {
  return remote::HttpHubClient::make(hub_access(), options);
}

}  // namespace weightmap
