// A store of files in memory that serves ranges, counts requests and fails as it is told.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/remote.hpp"

namespace weightmap::test {

// Any thread.
class ByteStore {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  struct Request {
    std::string file;
    std::uint64_t offset;
    std::uint64_t length;
    friend bool operator==(const Request&, const Request&) = default;
  };

  void put(std::string_view file, std::string content) {
    files_[std::string(file)] = std::move(content);
  }
  void forget(std::string_view file) { files_.erase(std::string(file)); }
  // The requests that are made from here on fail from this number on, which counts from 0.
  void fail_from(std::uint64_t number) {
    requests_.clear();
    failing_ = number;
  }
  // Reads end early, without an error.
  bool ends_early = false;

  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void clear_requests() { requests_.clear(); }
  // How often requests were made together: each identify() and read() of a source.
  std::atomic<std::uint64_t> rounds = 0;
  std::uint64_t bytes() const {
    std::uint64_t all = 0;
    for (const Request& request : requests()) all += request.length;
    return all;
  }

  bool has(const std::string& file) const { return files_.contains(file); }
  const std::string& content(const std::string& file) const { return files_.at(file); }

  // Fills `into` from `offset`.
  Result<void> serve(const std::string& file, std::uint64_t offset, std::span<std::byte> into) {
    const std::lock_guard lock(mutex_);
    requests_.push_back({file, offset, into.size()});
    if (requests_.size() > failing_) return failure(ErrorCode::io, "HTTP 503 Slow Down");
    if (!into.empty()) std::memcpy(into.data(), content(file).data() + offset, into.size());
    return {};
  }

 private:
  std::map<std::string, std::string> files_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::uint64_t failing_ = never;
};

class StoreSource final : public RangeSource {
 public:
  StoreSource(ByteStore& store, std::string file)
      : store_(store), file_(std::move(file)), name_("https://host/" + file_) {}

  const std::string& name() const noexcept override { return name_; }

  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override {
    ++store_.rounds;
    if (!store_.has(file_)) return failure(ErrorCode::io, "HTTP 404 Not Found");
    const std::uint64_t size = store_.content(file_).size();
    const auto front = head.first(std::min<std::uint64_t>(size, head.size()));
    const auto back = tail.last(std::min<std::uint64_t>(size, tail.size()));
    if (Result<void> ok = store_.serve(file_, 0, front); !ok)
      return tl::unexpected<Error>(ok.error());
    if (!back.empty())
      if (Result<void> ok = store_.serve(file_, size - back.size(), back); !ok)
        return tl::unexpected<Error>(ok.error());
    return RemoteVersion{.size = size, .tag = "\"1\""};
  }

  Result<void> read(RangeReader& reader) override {
    ++store_.rounds;
    if (store_.ends_early) return {};
    while (const std::optional<RangeRequest> request = reader.next()) {
      if (Result<void> ok = store_.serve(file_, request->offset, request->into); !ok) return ok;
      if (Result<void> ok = reader.arrived(*request); !ok) return ok;
      if (!reader.goes_on(request->into.size()))
        return failure(ErrorCode::cancelled, "was cancelled");
    }
    return {};
  }

  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override {
    const std::string folder = file_.substr(0, file_.rfind('/') + 1);
    return std::make_unique<StoreSource>(store_, folder + relative);
  }

  RangeCounts counts() const noexcept override { return {}; }

 private:
  ByteStore& store_;
  const std::string file_;
  const std::string name_;
};

}  // namespace weightmap::test
