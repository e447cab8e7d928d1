#include "remote/judgement.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weightmap::remote {
namespace {

Judgement failed(ErrorCode code, std::string message, int os_error = 0) {
  return {.outcome = Outcome::failed,
          .error = {.code = code, .message = std::move(message), .os_error = os_error}};
}

// Of a header field, for a message.
std::string shown(std::string_view value) {
  constexpr std::size_t most = 100;
  if (value.empty()) return "none";
  if (std::any_of(value.begin(), value.end(), [](char c) { return c < 0x20 || c > 0x7E; }))
    return "not printable";
  return std::string(value.substr(0, most)) + (value.size() > most ? "..." : "");
}

std::string http(const Answer& answer) { return "HTTP " + std::to_string(answer.status); }

Judgement changed(const Pinned& pinned, const std::string& now) {
  return failed(ErrorCode::io, "changed: the file was version " + shown(pinned.version.tag) +
                                   " of " + std::to_string(pinned.version.size) + " bytes, " + now);
}

Judgement changed_to(const Pinned& pinned, const Answer& answer, std::uint64_t total) {
  return changed(pinned, "and is version " + shown(answer.etag) + " of " + std::to_string(total) +
                             " bytes now");
}

bool is_same(const Pinned& pinned, const Answer& answer, std::uint64_t total) {
  if (total != pinned.version.size) return false;
  if (answer.etag != pinned.version.tag) return false;
  return !pinned.version.tag.empty() || answer.last_modified == pinned.last_modified;
}

Pinned pinned_by(const Answer& answer, std::uint64_t size) {
  // "null" stands for objects of before a bucket got versions.
  return {.version = {.size = size,
                      .tag = answer.etag,
                      .id = answer.version_id == "null" ? "" : answer.version_id},
          .last_modified = answer.last_modified};
}

Judgement judge_partial(const Answer& answer, const Ask& ask, const Pinned* pinned) {
  const auto range = ContentRange::parse(answer.content_range);
  if (!range)
    return failed(ErrorCode::io, "the server's Content-Range is " + shown(answer.content_range) +
                                     ", not one range of a known size");
  if (pinned != nullptr && !is_same(*pinned, answer, range->total))
    return changed_to(*pinned, answer, range->total);
  const ByteRange wanted = ask.within(range->total);
  if (!answer.content_length.empty() && answer.content_length != std::to_string(range->length))
    return failed(ErrorCode::io, "the server's Content-Length is " + shown(answer.content_length) +
                                     ", its Content-Range " + shown(answer.content_range));
  if (range->first != wanted.offset || range->length != wanted.length)
    return failed(ErrorCode::io, "the server answers bytes=" + ask.text() + " with Content-Range " +
                                     shown(answer.content_range));
  return {.outcome = Outcome::body,
          .found = pinned != nullptr ? *pinned : pinned_by(answer, range->total),
          .range = wanted};
}

// A file without bytes has no range. Some servers say so, others send all of it: nothing.
bool is_empty_file(const Answer& answer) {
  if (answer.status == 200) return answer.content_length == "0";
  return answer.status == 416 && ContentRange::parse(answer.content_range) == ContentRange{};
}

Judgement judge_unsatisfied(const Answer& answer, const Ask& ask, const Pinned* pinned) {
  const auto range = ContentRange::parse(answer.content_range);
  if (pinned != nullptr && range && range->total != pinned->version.size)
    return changed_to(*pinned, answer, range->total);
  return failed(ErrorCode::io, "the server has no range bytes=" + ask.text() + " (HTTP 416)");
}

bool is_refusal_of_suffix(const Answer& answer) {
  return answer.status == 200 || answer.status == 400 || answer.status == 416 ||
         answer.status == 501;
}

bool is_encoded(const Answer& answer) {
  return !answer.content_encoding.empty() && answer.content_encoding != "identity";
}

Judgement encoded_body(const Answer& answer) {
  return failed(ErrorCode::unsupported, "the server sends the file with Content-Encoding " +
                                            shown(answer.content_encoding));
}

Judgement judge_whole(const Answer& answer) {
  if (const Result<void> body = check_body(answer); !body)
    return failed(body.error().code, body.error().message);
  Judgement whole = failed(ErrorCode::unsupported,
                           "the server ignores ranges: it answers with the whole file (HTTP 200), "
                           "which weightmap fetch URL FILE copies");
  whole.ignores_ranges = true;
  return whole;
}

Judgement judge_missing(const Answer& answer, const Pinned* pinned) {
  if (pinned != nullptr) return changed(*pinned, "and is gone (" + http(answer) + ")");
  return failed(ErrorCode::io, "the store has no such file (" + http(answer) + ")", ENOENT);
}

bool may_pass(long status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

}  // namespace

std::string Ask::text() const {
  if (from_end) return "-" + std::to_string(length);
  return std::to_string(first) + "-" + std::to_string(first + (length - 1));
}

ByteRange Ask::within(std::uint64_t size) const noexcept {
  if (from_end) return {size - std::min(size, length), std::min(size, length)};
  return {first, first < size ? std::min(length, size - first) : 0};
}

Result<void> check_body(const Answer& answer) {
  if (answer.content_type.starts_with("text/html"))
    return failure(
        ErrorCode::unsupported,
        "the server answers with a web page (HTML, HTTP 200), such as one to log in, and "
        "not with the file");
  if (is_encoded(answer)) return tl::unexpected<Error>(encoded_body(answer).error);
  return {};
}

Judgement judge(const Answer& answer, const Ask& ask, const Pinned* pinned) {
  if (pinned == nullptr && is_empty_file(answer))
    return {.outcome = Outcome::empty, .found = pinned_by(answer, 0)};
  if (pinned == nullptr && ask.from_end && is_refusal_of_suffix(answer))
    return {.outcome = Outcome::no_suffix};
  switch (answer.status) {
    case 200:
      return judge_whole(answer);
    case 206:
      if (is_encoded(answer)) return encoded_body(answer);
      return judge_partial(answer, ask, pinned);
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
      if (answer.location.empty())
        return failed(ErrorCode::io,
                      "the store redirects without a location (" + http(answer) + ")");
      return {.outcome = Outcome::moved};
    case 400:  // S3's answer to a session token that has expired
    case 401:
    case 403:
      return {.outcome = Outcome::denied, .why = http(answer)};
    case 404:
    case 410:
      return judge_missing(answer, pinned);
    case 412:
      if (pinned == nullptr) break;
      return changed(*pinned, answer.etag.empty()
                                  ? "and is another one now (HTTP 412)"
                                  : "and is version " + shown(answer.etag) + " now (HTTP 412)");
    case 416:
      return judge_unsatisfied(answer, ask, pinned);
    default:
      break;
  }
  if (may_pass(answer.status)) return {.outcome = Outcome::again, .why = http(answer)};
  return failed(ErrorCode::io, "the server answers " + http(answer));
}

}  // namespace weightmap::remote
