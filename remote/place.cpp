#include "remote/place.hpp"

#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap::remote {

Place::Place(std::string given, Url home, std::vector<std::string> headers, Signer signer,
             std::optional<S3Access> s3)
    : given_(std::move(given)),
      home_(std::move(home)),
      target_(home_),
      own_(home_),
      headers_(std::move(headers)),
      signer_(std::move(signer)),
      s3_(std::move(s3)) {}

Result<void> Place::prepare() {
  if (at_ != At::unsigned_home) return {};
  at_ = At::home;
  return signer_ ? sign(false) : Result<void>();
}

Result<void> Place::sign(bool again) {
  TRY_ASSIGN(const std::string signed_text, signer_(given_, again));
  auto signed_url = Url::parse(signed_text);
  if (!signed_url || signed_url->scheme == "file")
    return failure(ErrorCode::invalid_argument, "the signer's URL is not one of https or http");
  home_ = target_ = *std::move(signed_url);
  return {};
}

RequestHead Place::request(const Ask& ask, const Pinned* pinned) const {
  RequestHead head{.url = target_.text(),
                   .headers = {"Accept-Encoding: identity", "Range: bytes=" + ask.text()}};
  if (pinned != nullptr && is_strong_tag(pinned->version.tag))
    head.headers.push_back("If-Match: " + pinned->version.tag);
  if (target_.has_origin_of(own_)) add_own_headers(head, pinned);
  return head;
}

RequestHead Place::request_whole() const {
  RequestHead head{.url = target_.text(), .headers = {"Accept-Encoding: identity"}};
  if (target_.has_origin_of(own_)) add_own_headers(head, nullptr);
  return head;
}

RequestHead Place::request_sum(const Pinned& pinned) const {
  RequestHead head{
      .url = target_.text(), .headers = {"x-amz-checksum-mode: ENABLED"}, .wants_body = false};
  if (target_.has_origin_of(own_)) add_own_headers(head, &pinned);
  return head;
}

void Place::add_own_headers(RequestHead& head, const Pinned* pinned) const {
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  head.user = target_.user;
  head.password = target_.password;
  if (!s3_) return;
  if (pinned != nullptr && !pinned->version.id.empty())
    head.url += (target_.query.empty() ? "?versionId=" : "&versionId=") +
                percent_encoded(pinned->version.id);
  if (s3_->key_id.empty()) return;
  head.user = s3_->key_id;
  head.password = s3_->secret;
  head.sigv4 = "aws:amz:" + s3_->region + ":s3";
  // libcurl signs them with the rest; 7.88 does not send the first one of itself.
  head.headers.push_back("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  if (!s3_->session_token.empty())
    head.headers.push_back("x-amz-security-token: " + s3_->session_token);
}

void Place::answered(unsigned generation) noexcept {
  if (generation == generation_) was_renewed_ = false;
}

Result<void> Place::follow(unsigned generation, const std::string& location) {
  if (generation != generation_) return {};
  TRY_ASSIGN(target_, target_.redirected(location));
  at_ = At::redirected;
  ++generation_;
  return {};
}

Result<bool> Place::renew(unsigned generation) {
  if (generation != generation_) return true;
  if (was_renewed_ || !(signer_ || at_ == At::redirected)) return false;
  was_renewed_ = true;
  at_ = At::home;
  target_ = home_;
  ++generation_;
  if (signer_) TRY(sign(true));
  return true;
}

std::string Place::credentials() const {
  if (signer_) return "the signer was asked again";
  if (own_.is_presigned())
    return "the signature in the URL has expired, or is of another file: get a new URL; a fetch "
           "goes on where it was";
  if (s3_ && !s3_->key_id.empty())
    return std::string("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY were used, ") +
           (s3_->session_token.empty() ? "AWS_SESSION_TOKEN is not set" : "with AWS_SESSION_TOKEN");
  if (s3_) return "no credentials were given: AWS_ACCESS_KEY_ID is not set";
  std::string text;
  for (const std::string& header : headers_)
    text += (text.empty() ? "sent were the headers " : ", ") + header.substr(0, header.find(':'));
  if (!own_.user.empty())
    text += (text.empty() ? "sent were " : ", ") + std::string("the URL's user and password");
  return text.empty() ? "no credentials were given: a header (--header), or a presigned URL" : text;
}

}  // namespace weightmap::remote
