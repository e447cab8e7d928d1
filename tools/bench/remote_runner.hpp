// Measures how fast a remote file comes into memory: weightmap, and libcurl alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/file_argument.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// Contenders, by their names in reports. The first is what the others are compared with.
inline constexpr std::string_view libcurl = "libcurl";            // bodies are thrown away
inline constexpr std::string_view libcurl_kept = "libcurl-kept";  // they are copied into memory
inline constexpr std::string_view weightmap_staged = "weightmap";

struct RemoteSeries {
  std::string_view contender;
  // One for each round, of "seconds", "cpu_seconds" (of all threads), "requests", "received_bytes"
  // and "received_twice_bytes".
  std::vector<Json> samples = {};

  std::vector<double> values(const char* field) const;
};

struct RemoteResults {
  std::string url;  // the part that may be shown
  std::uint64_t file_bytes = 0;
  unsigned rounds = 0;
  bool recycled_memory = true;
  std::vector<RemoteSeries> series;  // in the order of the report
};

// Fails as open_remote() and RangeSource::identify() do, with io if a contender fails, and if
// interrupted(). `file` is a URL of http or https.
Result<RemoteResults> run_remote_bench(const FileArgument& file, unsigned rounds,
                                       bool recycle_memory);

}  // namespace weightmap::cli::bench
