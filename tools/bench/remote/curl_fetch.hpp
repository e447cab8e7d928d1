// Fetches a file in ranges with libcurl alone: the floor that other ways are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// Where bodies go. Another thread prefaults memory for the whole file meanwhile, or there is none.
enum class Bodies { dropped, dropped_beside_prefault, kept };

struct CurlFetch {
  std::string url;  // redirects are not followed
  std::vector<std::string> headers = {};
  std::uint64_t size = 0;  // of the file, in bytes
  std::uint64_t chunk_bytes = 16u << 20;
  unsigned connections = 16;
  Bodies bodies = Bodies::dropped;
};

struct CurlFetched {
  std::uint64_t requests = 0;
  std::shared_ptr<std::byte> memory = {};  // null: there is none
};

// Retries nothing. Fails with io if the server does not answer with the range, breaks off, or sends
// nothing for 10 s.
Result<CurlFetched> fetch_with_curl(const CurlFetch& fetch);

}  // namespace weightmap::cli::bench
