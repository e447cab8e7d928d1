// A whole file by one request, in place of its ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "remote/answer.hpp"
#include "remote/place.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

// Where the body of a good answer goes.
class Body {
 public:
  virtual ~Body() = default;
  // Before its first byte; again if it broke off, and comes from the start.
  virtual Result<void> begins(const Answer& answer) = 0;
  virtual Result<void> take(std::span<const std::byte> bytes) = 0;
};

// Asks with the options' retries and limits, and follows redirects. Returns the last answer, whose
// body was taken if its status is 200. Fails with io if no answer came in the end, as RangeRun does
// at the deadline and once goes_on() is false, and as the body does.
Result<Answer> get_whole(Place& place, const RemoteOptions& options, Body& body,
                         RangeCounts& counts);

// The same for the header alone, of what Place::request_sum() asks for.
Result<Answer> get_sum(Place& place, const Pinned& pinned, const RemoteOptions& options,
                       RangeCounts& counts);

struct SmallAnswer {
  long status = 0;
  std::string body;
};

// The same with the options' headers, for a body that stays here. Fails with limit_exceeded for
// one beyond 64 MiB.
Result<SmallAnswer> get_small(const Url& url, const RemoteOptions& options);

}  // namespace weightmap::remote
