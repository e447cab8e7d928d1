// Fetches a file in ranges with libcurl alone, as the floor of bench/compare_remote.py.
//
//   curl_floor URL --size BYTES [--chunk BYTES] [--connections N] [--keep]
//
// Bodies are thrown away, or with --keep copied into memory that another thread has touched before.
// Prints {"wall_us", "bytes"}. Nothing is retried.
#include <curl/curl.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>

namespace {

struct Options {
  std::string url;
  std::uint64_t size = 0;
  std::uint64_t chunk = 16u << 20;
  unsigned connections = 16;
  bool keep = false;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "curl_floor: %s\n", why.c_str());
  std::exit(1);
}

struct EasyDeleter {
  void operator()(CURL* easy) const noexcept { curl_easy_cleanup(easy); }
};

// One request at a time, on one connection.
struct Lane {
  std::unique_ptr<CURL, EasyDeleter> easy{curl_easy_init()};
  std::byte* memory = nullptr;  // of the whole file; null: throw away
  std::uint64_t at = 0;
  std::uint64_t end = 0;

  static std::size_t write(char* data, std::size_t, std::size_t count, void* of) {
    auto& lane = *static_cast<Lane*>(of);
    if (count > lane.end - lane.at) return 0;
    if (lane.memory != nullptr) std::memcpy(lane.memory + lane.at, data, count);
    lane.at += count;
    return count;
  }
};

class Fetch {
 public:
  Fetch(const Options& options, std::byte* memory)
      : options_(options), lanes_(options.connections), multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, long{options.connections});
    for (Lane& lane : lanes_) {
      lane.memory = memory;
      CURL* easy = lane.easy.get();
      curl_easy_setopt(easy, CURLOPT_URL, options.url.c_str());
      curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
      curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
      curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, long{CURL_MAX_READ_SIZE});
      curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Lane::write);
      curl_easy_setopt(easy, CURLOPT_WRITEDATA, &lane);
      curl_easy_setopt(easy, CURLOPT_PRIVATE, &lane);
    }
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch() { curl_multi_cleanup(multi_); }

  void run() {
    for (Lane& lane : lanes_) begin(lane);
    int running = 1;
    while (running != 0) {
      if (curl_multi_perform(multi_, &running) != CURLM_OK) fail("curl_multi_perform");
      if (take_ended()) running = 1;
      if (running != 0) curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
  }

 private:
  // Returns whether there was a range left.
  bool begin(Lane& lane) {
    if (next_ == options_.size) return false;
    lane.at = next_;
    lane.end = next_ + std::min(options_.chunk, options_.size - next_);
    next_ = lane.end;
    const std::string range = std::to_string(lane.at) + "-" + std::to_string(lane.end - 1);
    curl_easy_setopt(lane.easy.get(), CURLOPT_RANGE, range.c_str());
    curl_multi_add_handle(multi_, lane.easy.get());
    return true;
  }

  bool take_ended() {
    bool has_begun = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->data.result != CURLE_OK) fail(curl_easy_strerror(message->data.result));
      Lane* lane = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &lane);
      if (lane->at != lane->end) fail("a range is short");
      curl_multi_remove_handle(multi_, lane->easy.get());
      if (begin(*lane)) has_begun = true;
    }
    return has_begun;
  }

  const Options& options_;
  std::deque<Lane> lanes_;
  CURLM* multi_;
  std::uint64_t next_ = 0;
};

std::byte* map(std::uint64_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory");
  return static_cast<std::byte*>(memory);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Fetches a file in ranges with libcurl alone.");
  app.add_option("url", options.url)->required();
  app.add_option("--size", options.size)->required()->check(CLI::PositiveNumber);
  app.add_option("--chunk", options.chunk)->check(CLI::PositiveNumber);
  app.add_option("--connections", options.connections)->check(CLI::Range(1, 1024));
  app.add_flag("--keep", options.keep);
  CLI11_PARSE(app, argc, argv);

  curl_global_init(CURL_GLOBAL_ALL);
  const auto began = std::chrono::steady_clock::now();
  std::byte* const memory = options.keep ? map(options.size) : nullptr;
  {
    std::jthread toucher([&] {
      if (memory != nullptr) ::madvise(memory, options.size, MADV_POPULATE_WRITE);
    });
    Fetch(options, memory).run();
  }
  const auto took = std::chrono::steady_clock::now() - began;
  std::printf(
      "{\"wall_us\": %lld, \"bytes\": %llu}\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()),
      static_cast<unsigned long long>(options.size));
}
