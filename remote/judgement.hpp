// Whether the body that follows an answer's header is the one that was asked for. It is decided
// before any of its bytes counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "remote/answer.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

// A range of the file; or, as long as its size is unknown, its first or last bytes.
struct Ask {
  std::uint64_t first = 0;
  std::uint64_t length = 0;
  bool from_end = false;  // the last `length` bytes; `first` is 0

  // As the header Range has it, after "bytes=".
  std::string text() const;
  // What it means in a file of this size.
  ByteRange within(std::uint64_t size) const noexcept;
};

// The version that all answers must be of.
struct Pinned {
  RemoteVersion version = {};
  std::string last_modified = {};  // compared where there is no tag
};

enum class Outcome : std::uint8_t {
  body,       // the bytes of `range` follow
  empty,      // the file has no bytes
  again,      // the server is busy or in trouble
  moved,      // to Answer::location
  denied,     // credentials are missing, wrong or expired
  no_suffix,  // the server does not know ranges from the end
  failed,     // with `error`; asking again would not help
};

struct Judgement {
  Outcome outcome = Outcome::failed;
  std::string why = {};  // of `again` and `denied`: "HTTP 503"
  Error error = {};
  bool ignores_ranges = false;  // why it has failed
  Pinned found = {};            // of `body` and `empty`
  ByteRange range = {0, 0};
};

// Whether a body that comes with status 200 is the file, and not a web page or an encoded one.
Result<void> check_body(const Answer& answer);

// `pinned`: nullptr until the version is known.
Judgement judge(const Answer& answer, const Ask& ask, const Pinned* pinned);

}  // namespace weightmap::remote
