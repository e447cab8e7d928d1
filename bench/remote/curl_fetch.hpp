// Fetches a file in ranges with libcurl alone: the floor that other ways are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct CurlFetch {
  std::string url;  // redirects are not followed
  std::vector<std::string> headers = {};
  std::uint64_t size = 0;  // of the file, in bytes
  std::uint64_t chunk_bytes = 16u << 20;
  unsigned connections = 16;
  // Copies bodies into memory that another thread touches meanwhile. Otherwise they are thrown
  // away.
  bool keep = false;
};

struct CurlFetched {
  std::uint64_t requests = 0;
  std::shared_ptr<std::byte> memory = {};  // null: thrown away
};

// Retries nothing. Fails with io if the server does not answer with the range, breaks off, or sends
// nothing for 10 s.
Result<CurlFetched> fetch_with_curl(const CurlFetch& fetch);

}  // namespace weightmap::cli::bench
