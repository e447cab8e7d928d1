// Where the pages of files go whose bytes nobody wants yet: through a pipe to /dev/null, which
// copies nothing. The system reads them as for any read, with its read-ahead and in large pages.
#pragma once

#include <cstdint>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// For one thread.
class PageSink {
 public:
  explicit PageSink(std::uint64_t bytes_at_once);

  // Returns once this part of the file is in the page cache. False if it cannot be brought there in
  // this way.
  bool take(const os::File& file, const ByteRange& part);

 private:
  bool drop(std::int64_t bytes);

  Descriptor from_, to_, nothing_;
};

}  // namespace weightmap::cli::start
