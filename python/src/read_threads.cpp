#include "python/src/read_threads.hpp"

#include <system_error>

#include "python/src/asking.hpp"
#include "python/src/bindings.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

Result<void> fill_from(const nb::object& bridge, const RangeRequest& request) {
  return asking([&] {
    const nb::object memory =
        checked(PyMemoryView_FromMemory(reinterpret_cast<char*>(request.into.data()),
                                        static_cast<Py_ssize_t>(request.into.size()), PyBUF_WRITE));
    bridge.attr("read_into")(request.offset, memory);
  });
}

}  // namespace

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

}  // namespace weightmap::python
