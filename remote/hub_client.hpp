// The hub over libcurl.
#pragma once

#include <memory>

#include "weightmap/remote.hpp"

namespace weightmap::remote {

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

}  // namespace weightmap::remote
