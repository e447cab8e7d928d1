// What a server answers before the body: the status and the header fields that matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::remote {

// "bytes 0-99/1234", or "bytes */1234", whose length is 0.
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t length = 0;
  std::uint64_t total = 0;

  // nullopt for anything else, for an unknown total, and for a range that is not within it.
  static std::optional<ContentRange> parse(std::string_view text) noexcept;
  friend bool operator==(const ContentRange&, const ContentRange&) = default;
};

struct Answer {
  long status = 0;  // 0: nothing has come
  std::string content_range;
  std::string content_encoding;
  std::string content_type;
  std::string content_length;
  std::string etag;
  std::string last_modified;
  std::string location;
  std::string version_id;       // S3's
  std::string checksum_sha256;  // likewise
  std::string checksum_type;    // likewise

  // Takes one line of the header, with or without its end. A status line begins a new answer: the
  // one before was preliminary. A field that comes twice gets both values, which then match
  // nothing.
  void take(std::string_view line);
};

// True for what HTTP allows to be sent in If-Match: not weak, in quotes, without control
// characters.
bool is_strong_tag(std::string_view tag) noexcept;

}  // namespace weightmap::remote
