// Fetches files in ranges with libcurl alone, as the floor of bench/compare_remote.py.
//
//   curl_floor URL... --size BYTES... [--chunk BYTES] [--connections N]
//              [--prefault | --keep]
//
// Bodies are thrown away, with --prefault while another thread touches as much memory. With --keep
// they are copied into that memory.
// Prints {"wall_us", "bytes"}. Nothing is retried.
#include <curl/curl.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/try.hpp"
#include "weightmap/result.hpp"

namespace weightmap {
namespace {

// Where bodies go. Another thread prefaults memory for the whole file meanwhile, or there is none.
enum class Bodies { dropped, dropped_beside_prefault, kept };

struct CurlFetch {
  std::vector<std::string> urls;     // redirects are not followed
  std::vector<std::uint64_t> sizes;  // of the files, in bytes
  std::uint64_t chunk_bytes = 16u << 20;
  unsigned connections = 16;
  Bodies bodies = Bodies::dropped;

  std::uint64_t size() const {
    return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  }
};

struct EasyDeleter {
  void operator()(CURL* easy) const noexcept { curl_easy_cleanup(easy); }
};
// One request at a time, on one connection.
struct Lane {
  std::unique_ptr<CURL, EasyDeleter> easy{curl_easy_init()};
  std::byte* memory = nullptr;  // of the whole of its file; null: throw away
  std::uint64_t at = 0;
  std::uint64_t end = 0;

  static std::size_t write(char* data, std::size_t, std::size_t count, void* of) {
    auto& lane = *static_cast<Lane*>(of);
    if (count > lane.end - lane.at) return 0;
    if (lane.memory != nullptr) std::memcpy(lane.memory + lane.at, data, count);
    lane.at += count;
    return count;
  }

  // After a request has ended.
  Result<void> check(CURLcode result) const {
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status != 0 && status != 206)
      return failure(ErrorCode::io, "HTTP " + std::to_string(status) + ", not a range (206)", at);
    if (result != CURLE_OK) return failure(ErrorCode::io, curl_easy_strerror(result), at);
    if (at != end) return failure(ErrorCode::io, "a range is short", at);
    return {};
  }
};

class Run {
 public:
  Run(const CurlFetch& fetch, std::byte* memory)
      : fetch_(fetch), memory_(memory), lanes_(fetch.connections), multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, long{fetch.connections});
    for (Lane& lane : lanes_) {
      CURL* easy = lane.easy.get();
      curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
      curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
      curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 10L);
      curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
      curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 10L);
      curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, long{CURL_MAX_READ_SIZE});
      curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Lane::write);
      curl_easy_setopt(easy, CURLOPT_WRITEDATA, &lane);
      curl_easy_setopt(easy, CURLOPT_PRIVATE, &lane);
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (Lane& lane : lanes_) curl_multi_remove_handle(multi_, lane.easy.get());
    curl_multi_cleanup(multi_);
  }

  Result<void> run() {
    for (Lane& lane : lanes_) begin(lane);
    int running = 1;
    while (running != 0) {
      if (const CURLMcode code = curl_multi_perform(multi_, &running); code != CURLM_OK)
        return failure(ErrorCode::io, curl_multi_strerror(code));
      TRY_ASSIGN(const bool has_begun, take_ended());
      if (has_begun) running = 1;
      if (running != 0) curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
    return {};
  }

 private:
  // Returns whether there was a range left.
  bool begin(Lane& lane) {
    if (file_ < fetch_.sizes.size() && next_ == fetch_.sizes[file_]) {
      if (memory_ != nullptr) memory_ += next_;
      next_ = 0;
      ++file_;
    }
    if (file_ == fetch_.sizes.size()) return false;
    lane.memory = memory_;
    lane.at = next_;
    lane.end = next_ + std::min(fetch_.chunk_bytes, fetch_.sizes[file_] - next_);
    next_ = lane.end;
    curl_easy_setopt(lane.easy.get(), CURLOPT_URL, fetch_.urls[file_].c_str());
    const std::string range = std::to_string(lane.at) + "-" + std::to_string(lane.end - 1);
    curl_easy_setopt(lane.easy.get(), CURLOPT_RANGE, range.c_str());
    curl_multi_add_handle(multi_, lane.easy.get());
    return true;
  }

  Result<bool> take_ended() {
    bool has_begun = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      Lane* lane = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &lane);
      TRY(lane->check(message->data.result));
      curl_multi_remove_handle(multi_, lane->easy.get());
      if (begin(*lane)) has_begun = true;
    }
    return has_begun;
  }

  const CurlFetch& fetch_;
  std::byte* memory_;  // of the file that is begun; null: there is none
  std::deque<Lane> lanes_;
  CURLM* multi_;
  std::size_t file_ = 0;
  std::uint64_t next_ = 0;  // in this file
};

// The cheapest to fault in: private, of huge pages where the system gives them.
Result<std::shared_ptr<std::byte>> map(std::uint64_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failure(ErrorCode::io, "not enough memory");
  ::madvise(memory, size, MADV_HUGEPAGE);
  const auto unmap = [size](std::byte* mapped) { ::munmap(mapped, size); };
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), unmap);
}

// Fails with io if the server does not answer with the range, breaks off, or sends nothing for 10
// s.
Result<void> fetch_with_curl(const CurlFetch& fetch) {
  std::shared_ptr<std::byte> memory;  // null: there is none
  if (fetch.bodies != Bodies::dropped) {
    TRY_ASSIGN(memory, map(fetch.size()));
  }
  const std::jthread toucher([&] {
    if (memory) ::madvise(memory.get(), fetch.size(), MADV_POPULATE_WRITE);
  });
  return Run(fetch, fetch.bodies == Bodies::kept ? memory.get() : nullptr).run();
}

}  // namespace
}  // namespace weightmap

int main(int argc, char** argv) {
  using namespace weightmap;
  CurlFetch fetch;
  CLI::App app("Fetches files in ranges with libcurl alone.");
  app.add_option("url", fetch.urls)->required();
  app.add_option("--size", fetch.sizes)->required()->check(CLI::PositiveNumber);
  app.add_option("--chunk", fetch.chunk_bytes)->check(CLI::PositiveNumber);
  app.add_option("--connections", fetch.connections)->check(CLI::Range(1, 1024));
  CLI::Option* prefault =
      app.add_flag_callback("--prefault", [&] { fetch.bodies = Bodies::dropped_beside_prefault; });
  app.add_flag_callback("--keep", [&] { fetch.bodies = Bodies::kept; })->excludes(prefault);
  CLI11_PARSE(app, argc, argv);
  if (fetch.urls.size() != fetch.sizes.size()) {
    std::fprintf(stderr, "curl_floor: a --size for each URL\n");
    return 2;
  }

  const auto began = std::chrono::steady_clock::now();
  const Result<void> fetched = fetch_with_curl(fetch);
  const auto took = std::chrono::steady_clock::now() - began;
  if (!fetched) {
    std::fprintf(stderr, "curl_floor: %s\n", to_string(fetched.error()).c_str());
    return 1;
  }
  std::printf(
      "{\"wall_us\": %lld, \"bytes\": %llu}\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()),
      static_cast<unsigned long long>(fetch.size()));
}
