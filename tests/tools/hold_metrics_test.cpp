// The text that Prometheus reads, byte by byte.
#include <doctest/doctest.h>

#include <string>

#include "tools/hold/metrics_file.hpp"

using weightmap::cli::Json;
using weightmap::cli::hold::metrics_text;

namespace {

Json held(const std::string& path) {
  return {{"file", path},        {"state", "held"},        {"locked", true},
          {"file_bytes", 4096},  {"resident_bytes", 4096}, {"cached_bytes", 4000},
          {"bytes_left_out", 0}, {"reloads", 2},           {"elections", 3},
          {"evicted_bytes", 96}, {"problem", nullptr}};
}

}  // namespace

TEST_CASE("each metric is told with its help and type, a line for each file") {
  Json second = held("/models/b.pt");
  second["locked"] = false;
  second["reloads"] = 0;
  CHECK(metrics_text({{"files", {held("/models/a.pt"), second}}}, 8192) ==
        R"(# HELP weightmap_file_bytes Size of the version that is held.
# TYPE weightmap_file_bytes gauge
weightmap_file_bytes{checkpoint="/models/a.pt"} 4096
weightmap_file_bytes{checkpoint="/models/b.pt"} 4096
# HELP weightmap_resident_bytes Bytes that the daemon has mapped.
# TYPE weightmap_resident_bytes gauge
weightmap_resident_bytes{checkpoint="/models/a.pt"} 4096
weightmap_resident_bytes{checkpoint="/models/b.pt"} 4096
# HELP weightmap_cached_bytes Bytes in the page cache.
# TYPE weightmap_cached_bytes gauge
weightmap_cached_bytes{checkpoint="/models/a.pt"} 4000
weightmap_cached_bytes{checkpoint="/models/b.pt"} 4000
# HELP weightmap_locked 1 if the system may not take the memory.
# TYPE weightmap_locked gauge
weightmap_locked{checkpoint="/models/a.pt"} 1
weightmap_locked{checkpoint="/models/b.pt"} 0
# HELP weightmap_left_out_bytes Bytes that did not fit into free memory.
# TYPE weightmap_left_out_bytes gauge
weightmap_left_out_bytes{checkpoint="/models/a.pt"} 0
weightmap_left_out_bytes{checkpoint="/models/b.pt"} 0
# HELP weightmap_evicted_bytes_total Bytes that were in memory before, and that a look found taken from it.
# TYPE weightmap_evicted_bytes_total counter
weightmap_evicted_bytes_total{checkpoint="/models/a.pt"} 96
weightmap_evicted_bytes_total{checkpoint="/models/b.pt"} 96
# HELP weightmap_generation_changes_total How often a new version took the place of the held one.
# TYPE weightmap_generation_changes_total counter
weightmap_generation_changes_total{checkpoint="/models/a.pt"} 2
weightmap_generation_changes_total{checkpoint="/models/b.pt"} 0
# HELP weightmap_reader_elections_total Warm-ups for which the daemon was elected to read from the disk.
# TYPE weightmap_reader_elections_total counter
weightmap_reader_elections_total{checkpoint="/models/a.pt"} 3
weightmap_reader_elections_total{checkpoint="/models/b.pt"} 3
# HELP weightmap_read_bytes_total Bytes that the storage read for the daemon, metadata among them.
# TYPE weightmap_read_bytes_total counter
weightmap_read_bytes_total 8192
)");
}

TEST_CASE("what is not known has no line, and a metric without lines no help") {
  Json unknown = held("/models/a.pt");
  for (const char* key : {"resident_bytes", "cached_bytes", "evicted_bytes"})
    unknown[key] = nullptr;
  const std::string text = metrics_text({{"files", {unknown}}}, std::nullopt);
  CHECK(text.find("weightmap_file_bytes") != std::string::npos);
  for (const char* name : {"resident", "cached", "evicted", "read_bytes"})
    CHECK(text.find("weightmap_" + std::string(name)) == std::string::npos);
  CHECK(metrics_text({{"files", Json::array()}}, std::nullopt) == "");
}

TEST_CASE("labels escape what the format gives a meaning, and are UTF-8") {
  const auto label = [](const std::string& path) {
    const std::string text = metrics_text({{"files", {held(path)}}}, std::nullopt);
    const std::size_t begin = text.find("{checkpoint=");
    return text.substr(begin, text.find("} ", begin) + 1 - begin);
  };
  CHECK(label("/a b.pt") == R"({checkpoint="/a b.pt"})");
  CHECK(label("/a\\b.pt") == R"({checkpoint="/a\\b.pt"})");
  CHECK(label("/a\"b.pt") == R"({checkpoint="/a\"b.pt"})");
  CHECK(label("/a\nb.pt") == R"({checkpoint="/a\nb.pt"})");
  CHECK(label("/\xC3\xA4.pt") == "{checkpoint=\"/\xC3\xA4.pt\"}");
  CHECK(label("/\xE4.pt") == "{checkpoint=\"/\xEF\xBF\xBD.pt\"}");
}
