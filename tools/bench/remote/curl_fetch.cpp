#include "tools/bench/remote/curl_fetch.hpp"

#include <curl/curl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap::cli::bench {
namespace {

struct EasyDeleter {
  void operator()(CURL* easy) const noexcept { curl_easy_cleanup(easy); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListDeleter>;

HeaderList header_list(const std::vector<std::string>& headers) {
  HeaderList list;
  for (const std::string& header : headers)
    list.reset(curl_slist_append(list.release(), header.c_str()));
  return list;
}

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
      : fetch_(fetch),
        headers_(header_list(fetch.headers)),
        lanes_(fetch.connections),
        multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, long{fetch.connections});
    for (Lane& lane : lanes_) {
      lane.memory = memory;
      CURL* easy = lane.easy.get();
      curl_easy_setopt(easy, CURLOPT_URL, fetch.url.c_str());
      curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_.get());
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

  // Returns the number of requests.
  Result<std::uint64_t> run() {
    for (Lane& lane : lanes_) begin(lane);
    int running = 1;
    while (running != 0) {
      if (const CURLMcode code = curl_multi_perform(multi_, &running); code != CURLM_OK)
        return failure(ErrorCode::io, curl_multi_strerror(code));
      TRY_ASSIGN(const bool has_begun, take_ended());
      if (has_begun) running = 1;
      if (running != 0) curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
    return requests_;
  }

 private:
  // Returns whether there was a range left.
  bool begin(Lane& lane) {
    if (next_ == fetch_.size) return false;
    lane.at = next_;
    lane.end = next_ + std::min(fetch_.chunk_bytes, fetch_.size - next_);
    next_ = lane.end;
    const std::string range = std::to_string(lane.at) + "-" + std::to_string(lane.end - 1);
    curl_easy_setopt(lane.easy.get(), CURLOPT_RANGE, range.c_str());
    curl_multi_add_handle(multi_, lane.easy.get());
    ++requests_;
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
  HeaderList headers_;
  std::deque<Lane> lanes_;
  CURLM* multi_;
  std::uint64_t next_ = 0;
  std::uint64_t requests_ = 0;
};

// The cheapest to fault in: private, of huge pages where the system gives them.
Result<std::shared_ptr<std::byte>> map(std::uint64_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failure(ErrorCode::io, "not enough memory");
  ::madvise(memory, size, MADV_HUGEPAGE);
  const auto unmap = [size](std::byte* mapped) { ::munmap(mapped, size); };
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), unmap);
}

}  // namespace

Result<CurlFetched> fetch_with_curl(const CurlFetch& fetch) {
  CurlFetched fetched;
  if (fetch.bodies != Bodies::dropped) {
    TRY_ASSIGN(fetched.memory, map(fetch.size));
  }
  std::jthread toucher([&] {
    if (fetched.memory) ::madvise(fetched.memory.get(), fetch.size, MADV_POPULATE_WRITE);
  });
  std::byte* const into = fetch.bodies == Bodies::kept ? fetched.memory.get() : nullptr;
  TRY_ASSIGN(fetched.requests, Run(fetch, into).run());
  toucher.join();
  return fetched;
}

}  // namespace weightmap::cli::bench
