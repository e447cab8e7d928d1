// Fetches a file in ranges with libcurl alone, as the floor of bench/compare_remote.py.
//
//   curl_floor URL --size BYTES [--chunk BYTES] [--connections N]
//              [--prefault | --keep]
//
// Bodies are thrown away, with --prefault while another thread touches as much memory. With --keep
// they are copied into that memory.
// Prints {"wall_us", "bytes"}. Nothing is retried.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "tools/bench/remote/curl_fetch.hpp"

int main(int argc, char** argv) {
  using namespace weightmap;
  cli::bench::CurlFetch fetch;
  CLI::App app("Fetches a file in ranges with libcurl alone.");
  app.add_option("url", fetch.url)->required();
  app.add_option("--size", fetch.size)->required()->check(CLI::PositiveNumber);
  app.add_option("--chunk", fetch.chunk_bytes)->check(CLI::PositiveNumber);
  app.add_option("--connections", fetch.connections)->check(CLI::Range(1, 1024));
  CLI::Option* prefault = app.add_flag_callback(
      "--prefault", [&] { fetch.bodies = cli::bench::Bodies::dropped_beside_prefault; });
  app.add_flag_callback("--keep", [&] { fetch.bodies = cli::bench::Bodies::kept; })
      ->excludes(prefault);
  CLI11_PARSE(app, argc, argv);

  const auto began = std::chrono::steady_clock::now();
  const Result<cli::bench::CurlFetched> fetched = cli::bench::fetch_with_curl(fetch);
  const auto took = std::chrono::steady_clock::now() - began;
  if (!fetched) {
    std::fprintf(stderr, "curl_floor: %s\n", to_string(fetched.error()).c_str());
    return 1;
  }
  std::printf(
      "{\"wall_us\": %lld, \"bytes\": %llu}\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()),
      static_cast<unsigned long long>(fetch.size));
}
