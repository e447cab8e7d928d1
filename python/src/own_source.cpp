#include "python/src/own_source.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/src/asking.hpp"
#include "python/src/bindings.hpp"
#include "python/src/text.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// The threads that call read_into() of a source of Python's. One thread, without the GIL, calls its
// functions.
class ReadThreads {
 public:
  struct Done {
    RangeRequest request;
    Result<void> result;
  };

  // Each keeps what Python stores by thread (threading.local) until it ends.
  ReadThreads(const HeldObject& bridge, unsigned most) : bridge_(bridge), most_(most) {}
  ~ReadThreads();  // waits for the calls that have begun

  bool are_all_busy() const noexcept { return under_way_ >= most_; }
  bool are_idle() const noexcept { return under_way_ == 0; }
  // Fails if there is no thread and the system refuses one.
  Result<void> begin(const RangeRequest& request);
  // nullopt if nothing has ended for so long.
  std::optional<Done> next_done(std::chrono::milliseconds longest);

 private:
  void work();
  std::optional<RangeRequest> take();  // nullopt: the thread is to end
  Result<void> add_thread();

  const HeldObject& bridge_;
  const unsigned most_;
  std::size_t under_way_ = 0;  // begun, and not yet returned by next_done()
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  std::deque<RangeRequest> waiting_;  // under the mutex, as what follows
  std::deque<Done> done_;
  bool is_over_ = false;
};

Result<void> fill_from(const nb::object& bridge, const RangeRequest& request) {
  return asking([&] {
    const nb::object memory =
        checked(PyMemoryView_FromMemory(reinterpret_cast<char*>(request.into.data()),
                                        static_cast<Py_ssize_t>(request.into.size()), PyBUF_WRITE));
    bridge.attr("read_into")(request.offset, memory);
  });
}

ReadThreads::~ReadThreads() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Result<void> ReadThreads::begin(const RangeRequest& request) {
  if (threads_.size() <= under_way_) TRY(add_thread());
  {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(request);
  }
  ++under_way_;
  begun_.notify_one();
  return {};
}

Result<void> ReadThreads::add_thread() {
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& refusal) {  // the limit on threads
    if (threads_.empty())
      return tl::unexpected<Error>(
          {ErrorCode::io, "cannot start a thread", Error::no_offset, {}, refusal.code().value()});
  }
  return {};
}

std::optional<ReadThreads::Done> ReadThreads::next_done(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, longest, [this] { return !done_.empty(); })) return std::nullopt;
  Done done = std::move(done_.front());
  done_.pop_front();
  --under_way_;
  return done;
}

void ReadThreads::work() {
  const nb::gil_scoped_acquire gil;
  while (const std::optional<RangeRequest> request = without_gil([this] { return take(); })) {
    Result<void> result = fill_from(*bridge_, *request);
    const std::scoped_lock lock(mutex_);  // whose owners do not wait for the GIL
    done_.push_back({*request, std::move(result)});
    ended_.notify_one();
  }
}

std::optional<RangeRequest> ReadThreads::take() {
  std::unique_lock lock(mutex_);
  begun_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
  if (is_over_) return std::nullopt;
  const RangeRequest request = waiting_.front();
  waiting_.pop_front();
  return request;
}

constexpr std::chrono::milliseconds between_looks{50};  // at whether a read is to go on

// The first and the last bytes of a file.
class BothEnds final : public RangeReader {
 public:
  BothEnds(std::uint64_t size, std::span<std::byte> head, std::span<std::byte> tail)
      : ranges_{RangeRequest{0, head.first(std::min<std::uint64_t>(size, head.size()))},
                RangeRequest{size - std::min<std::uint64_t>(size, tail.size()),
                             tail.last(std::min<std::uint64_t>(size, tail.size()))}} {}

  std::optional<RangeRequest> next() override {
    while (next_ < ranges_.size() && ranges_[next_].into.empty()) ++next_;
    if (next_ == ranges_.size()) return std::nullopt;
    return ranges_[next_++];
  }
  Result<void> arrived(const RangeRequest&) override { return {}; }
  bool goes_on(std::uint64_t) override { return true; }

 private:
  std::array<RangeRequest, 2> ranges_;
  std::size_t next_ = 0;
};

// Its functions are called by threads without the GIL. Up to `connections` threads, which end with
// each read(), call the object; none does once a function has returned.
class OwnSource final : public RangeSource {
 public:
  OwnSource(HeldObject bridge, std::string name, unsigned connections)
      : bridge_(std::move(bridge)), name_(std::move(name)), connections_(connections) {}

  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override;
  Result<void> read(RangeReader& reader) override;
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override;
  RangeCounts counts() const noexcept override;

 private:
  Result<void> read_ranges(RangeReader& reader);
  Result<void> check();
  Error about(Error error) const;  // names this source

  HeldObject bridge_;
  std::string name_;
  unsigned connections_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

Result<RemoteVersion> OwnSource::identify(std::span<std::byte> head, std::span<std::byte> tail) {
  RemoteVersion version;
  const Result<void> found = asking([&] {
    version.size = nb::cast<std::uint64_t>(bridge_->attr("size"));
    version.tag = to_utf8(bridge_->attr("tag"));
  });
  if (!found) return tl::unexpected<Error>(about(found.error()));
  BothEnds ends(version.size, head, tail);
  TRY(read(ends));
  return version;
}

Result<void> OwnSource::read(RangeReader& reader) { return read_ranges(reader); }

// What arrives is of the version of identify(), and may be used at once.
Result<void> OwnSource::check() {
  const Result<void> same = asking([&] { bridge_->attr("check")(); });
  if (!same) return tl::unexpected<Error>(about(same.error()));
  return {};
}

Result<void> OwnSource::read_ranges(RangeReader& reader) {
  ReadThreads threads(bridge_, connections_);
  std::uint64_t received = 0;
  for (;;) {
    while (!threads.are_all_busy()) {
      const std::optional<RangeRequest> request = reader.next();
      if (!request) break;
      ++requests_;
      TRY(threads.begin(*request));
    }
    if (threads.are_idle()) return {};
    if (const auto done = threads.next_done(between_looks)) {
      if (!done->result) return tl::unexpected<Error>(about(done->result.error()));
      received += done->request.into.size();
      bytes_ += done->request.into.size();
      TRY(check());
      TRY(reader.arrived(done->request));
    }
    if (!reader.goes_on(received))
      return tl::unexpected<Error>(
          about({ErrorCode::cancelled, "the read was cancelled", Error::no_offset, {}}));
  }
}

Result<std::unique_ptr<RangeSource>> OwnSource::sibling(const std::string& relative) const {
  std::unique_ptr<RangeSource> found;
  const Result<void> asked = asking([&] {
    const nb::object bridge = bridge_->attr("sibling")(to_str(relative));
    if (!bridge.is_none()) found = own_source(bridge);
  });
  if (!asked) return tl::unexpected<Error>(about(asked.error()));
  if (found) return found;
  return tl::unexpected<Error>(
      about({ErrorCode::unsupported,
             "is a source without sibling(), by which '" + relative + "' would be found",
             Error::no_offset,
             {}}));
}

RangeCounts OwnSource::counts() const noexcept {
  RangeCounts counts;
  counts.requests = requests_;
  counts.bytes = bytes_;
  return counts;
}

Error OwnSource::about(Error error) const {
  error.file = name_;
  return error;
}

}  // namespace

std::unique_ptr<RangeSource> own_source(nb::handle bridge) {
  return std::make_unique<OwnSource>(hold_object(nb::borrow(bridge)), to_utf8(bridge.attr("name")),
                                     nb::cast<unsigned>(bridge.attr("connections")));
}

}  // namespace weightmap::python
