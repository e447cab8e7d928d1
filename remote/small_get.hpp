// The whole body of a small answer, in place of a file's range.
#pragma once

#include <string>

#include "remote/url.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

struct SmallAnswer {
  long status = 0;
  std::string body;
};

// Asks with the options' headers, retries and limits, and follows redirects; the headers go to the
// URL's own origin only. Fails with io if no answer came in the end, with limit_exceeded for a body
// beyond 64 MiB, and as RangeRun does at the deadline and once goes_on() is false.
Result<SmallAnswer> get_small(const Url& url, const RemoteOptions& options);

}  // namespace weightmap::remote
