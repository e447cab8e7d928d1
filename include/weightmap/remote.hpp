// Remote files by URL: the library libweightmap_remote, which stands on libcurl.
//
//   auto source = weightmap::open_url("https://host/model.pt");
//   if (!source) return tl::unexpected(source.error());
//   auto staged = weightmap::stage(*std::move(source));  // fetch.hpp
//   if (!staged) return tl::unexpected(staged.error());
//   auto checkpoint = weightmap::Checkpoint::open_descriptor(staged->descriptor());
//
// Credentials come from the URL itself (presigned), from RemoteOptions::signer or headers, or, for
// s3://bucket/key, from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and
// AWS_ENDPOINT_URL. No message and no log has a query string, a password or a header's value.
// Proxies and certificates are those of libcurl's environment variables.
//
// All functions may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/hub_model.hpp"
#include "weightmap/range_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct RemoteOptions {
  // Requests on their way at a time. 0: begins with 16, and doubles up to 64 while the rate grows.
  unsigned connections = 0;
  // Requests that may fail for one range, one after the other.
  unsigned retries = 6;
  // For all that one read() does; 0: none.
  std::chrono::milliseconds deadline{0};
  // For all that the source and its siblings do, in all; unset: none.
  std::chrono::steady_clock::time_point until{};
  // Without a byte for so long, a request counts as failed.
  std::chrono::milliseconds stall{10'000};
  // Returns the URL to request in place of `url`, which is as it was given: a presigned one. Called
  // once per file, and again (`again`) after the store refused the last one.
  std::function<Result<std::string>(const std::string& url, bool again)> signer = {};
  // "Name: value". They are sent to the host of the URL, and to no other one after a redirect.
  std::vector<std::string> headers = {};
  // Takes files of a server that names no version: neither an ETag nor a date. Bytes of two
  // versions may then come as one file. Without this identify() fails with unsupported.
  bool unproven = false;
  // Called at least ten times a second by the thread that waits for the store, also in identify().
  // false: the call fails with cancelled.
  std::function<bool()> goes_on = {};
};

// True for what open_url() takes: http://, https://, s3://, file://, and hf:// (hub_model.hpp).
WEIGHTMAP_API bool is_url(const std::string& text) noexcept;

// Checks the URL, and asks nothing of the network yet. Fails with invalid_argument for a URL that
// cannot be used.
WEIGHTMAP_API Result<std::unique_ptr<RangeSource>> open_url(const std::string& url,
                                                            const RemoteOptions& options = {});

// The hub of hub_access(): https://huggingface.co unless HF_ENDPOINT says otherwise. The token is
// sent to this host only. Of the options all but the signer apply. Fails with invalid_argument for
// an endpoint or options that cannot be used.
WEIGHTMAP_API Result<std::shared_ptr<HubClient>> hub_client(const RemoteOptions& options = {});

// The name of a version of a file: "model.pt@TAG". The tag is without its quotes, and each
// byte of it but letters, digits, "-" and "." is "_" and two hexadecimal digits. Empty without a
// tag.
WEIGHTMAP_API std::string version_file_name(const std::string& file, const RemoteVersion& version);

}  // namespace weightmap
