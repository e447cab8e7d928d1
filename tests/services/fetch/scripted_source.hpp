// A store in memory that serves ranges as a test tells it: out of order, damaged, not at all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "tests/support/shards.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::test {

struct Asked {
  std::string file;
  std::uint64_t offset;
  std::uint64_t length;
};

// What sources share, each used by one thread at a time. Tests look at it when no source is read.
struct Store {
  static constexpr std::size_t never = ~std::size_t{0};

  std::map<std::string, std::string> files;
  std::string tag = "\"1\"";
  std::string host = "https://host/";
  std::size_t at_a_time = 4;  // ranges on their way, of which the last one arrives first
  bool tells_began = true;    // so that ranges are as long as they may be
  // Called before each range that is asked for, and for its bytes before they arrive.
  std::function<void()> before_next = [] {};
  std::function<void(std::uint64_t offset, std::span<std::byte> bytes)> damage =
      [](std::uint64_t, std::span<std::byte>) {};
  std::size_t arriving = never;  // ranges that arrive before reads fail
  Error error = {ErrorCode::io, "HTTP 503 Slow Down", Error::no_offset, {}};

  std::vector<Asked> asked = {};  // by read()
  std::uint64_t bytes = 0;        // that were served

  // A bit of the byte at this offset is wrong, the first `times` that it is read.
  void damage_at(std::uint64_t at, int times) {
    damage = [at, times](std::uint64_t offset, std::span<std::byte> part) mutable {
      if (at < offset || at - offset >= part.size() || times-- <= 0) return;
      part[at - offset] ^= std::byte{1};
    };
  }
  std::vector<std::uint64_t> asked_offsets() const {
    std::vector<std::uint64_t> offsets;
    for (const Asked& range : asked) offsets.push_back(range.offset);
    return offsets;
  }
};

class ScriptedSource final : public RangeSource {
 public:
  ScriptedSource(Store& store, std::string file)
      : store_(store), file_(std::move(file)), name_(store.host + file_) {}

  const std::string& name() const noexcept override { return name_; }

  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override {
    const std::lock_guard guard(mutex_);
    const std::string& content = store_.files.at(file_);
    const std::size_t front = std::min(head.size(), content.size());
    const std::size_t back = std::min(tail.size(), content.size());
    std::copy_n(std::as_bytes(std::span(content)).begin(), front, head.begin());
    std::copy_n(std::as_bytes(std::span(content)).end() - static_cast<std::ptrdiff_t>(back), back,
                tail.end() - static_cast<std::ptrdiff_t>(back));
    store_.bytes += front + back;
    return RemoteVersion{.size = content.size(), .tag = store_.tag};
  }

  Result<void> read(RangeReader& reader) override {
    for (std::uint64_t received = 0;;) {
      const std::vector<RangeRequest> requests = next_of(reader);
      if (requests.empty()) return {};
      for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
        TRY(serve(*request));
        if (Result<void> ok = reader.arrived(*request); !ok) return ok;
        received += request->into.size();
        if (!reader.goes_on(received)) return failure(ErrorCode::cancelled, "was cancelled");
      }
    }
  }

  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override {
    const std::string beside = file_.substr(0, file_.rfind('/') + 1) + relative;
    if (!store_.files.contains(beside)) return failure(ErrorCode::io, "HTTP 404 Not Found");
    return std::make_unique<ScriptedSource>(store_, beside);
  }

  bool tells_began() const noexcept override { return store_.tells_began; }

  RangeCounts counts() const noexcept override {
    const std::lock_guard guard(mutex_);
    return {.bytes = store_.bytes};
  }

 private:
  std::vector<RangeRequest> next_of(RangeReader& reader) {
    std::vector<RangeRequest> requests;
    while (requests.size() < store_.at_a_time) {
      {
        const std::lock_guard guard(mutex_);
        store_.before_next();
      }
      const std::optional<RangeRequest> request = reader.next();  // which may wait for others
      if (!request) break;
      const std::lock_guard guard(mutex_);
      store_.asked.push_back({file_, request->offset, request->into.size()});
      requests.push_back(*request);
    }
    return requests;
  }

  Result<void> serve(const RangeRequest& request) {
    const std::lock_guard guard(mutex_);
    if (store_.arriving == 0) return tl::unexpected<Error>(store_.error);
    if (store_.arriving != Store::never) --store_.arriving;
    const auto content = std::as_bytes(std::span(store_.files.at(file_)));
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(request.offset), request.into.size(),
                request.into.begin());
    store_.damage(request.offset, request.into);
    store_.bytes += request.into.size();
    return {};
  }

  static inline std::mutex mutex_;  // of what a store has, for all of them
  Store& store_;
  const std::string file_;
  const std::string name_;
};

// A source of which a test says no more than it needs.
struct PlainSource : RangeSource {
  explicit PlainSource(std::string name) : name_(std::move(name)) {}
  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte>, std::span<std::byte>) override {
    return RemoteVersion{};
  }
  Result<std::unique_ptr<RangeSource>> sibling(const std::string&) const override {
    return failure(ErrorCode::unsupported, "none");
  }
  RangeCounts counts() const noexcept override { return {}; }

 private:
  const std::string name_;
};

inline std::unique_ptr<ScriptedSource> source_of(Store& store,
                                                 const std::string& file = "model.pt") {
  return std::make_unique<ScriptedSource>(store, file);
}

inline constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

// Bytes of which no two pages are the same, made quickly without optimisation, too.
inline std::string noise(std::size_t bytes, std::uint32_t seed) {
  std::string page(4096, '\0');
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& c : page) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  std::string text;
  while (text.size() < bytes) {
    const std::string number = std::to_string(text.size());
    text += page.replace(0, number.size(), number);
  }
  text.resize(bytes);
  return text;
}

inline constexpr std::size_t tensor_bytes = 3 * mebi / 2;

// Eight tensors of 1.5 MiB, "t0" to "t7", each of noise of its number: the first two reads have the
// first and the last MiB, more or less.
inline std::string twelve_mebi() {
  Tensors tensors;
  for (std::uint32_t i = 0; i < 8; ++i)
    tensors.emplace_back("t" + std::to_string(i), noise(tensor_bytes, i));
  return torch_zip(tensors);
}

}  // namespace weightmap::test
