#include "runtime/services/fetch/running_sum.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t summed_step = std::uint64_t{256} << 10;  // stays in a processor's cache
constexpr std::chrono::milliseconds asked_every{100};

}  // namespace

RunningSum::RunningSum(const bytes::ByteSource& file)
    : file_(file), buffer_(static_cast<std::size_t>(std::min(summed_step, file.size()))) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    result_ = failure(ErrorCode::io, std::string("cannot start a thread: ") + error.what());
  }
}

RunningSum::~RunningSum() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RunningSum::reach(std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  if (end <= end_) return;
  end_ = end;
  changed_.notify_all();
}

Result<bytes::Sha256::Digest> RunningSum::finish(const Progress& progress) {
  reach(file_.size());
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, asked_every, [this] { return result_.has_value(); })) {
    lock.unlock();
    TRY(go_on(progress, file_.size(), file_.size()));
    lock.lock();
  }
  return *result_;
}

void RunningSum::run() {
  bytes::Sha256 sum;
  Result<void> read;
  std::unique_lock lock(mutex_);
  for (std::uint64_t at = 0; read && at < file_.size();) {
    changed_.wait(lock, [&] { return end_ > at || is_over_; });
    if (is_over_) return;
    const auto part = std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end_ - at));
    lock.unlock();
    read = file_.read(at, part);
    if (read) sum.add(part);
    at += part.size();
    lock.lock();
  }
  if (read)
    result_ = sum.digest();
  else
    result_ = tl::unexpected<Error>(std::move(read.error()));
  changed_.notify_all();
}

}  // namespace weightmap
