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

RunningSum::RunningSum(const bytes::ByteSource& file) : RunningSum(&file, {}, file.size()) {}

RunningSum::RunningSum(std::span<const std::byte> memory)
    : RunningSum(nullptr, memory, memory.size()) {}

RunningSum::RunningSum(const bytes::ByteSource* file, std::span<const std::byte> memory,
                       std::uint64_t size)
    : file_(file),
      memory_(memory),
      size_(size),
      buffer_(file == nullptr ? 0 : static_cast<std::size_t>(std::min(summed_step, size))) {
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
  reach(size_);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, asked_every, [this] { return result_.has_value(); })) {
    lock.unlock();
    TRY(go_on(progress, size_, size_));
    lock.lock();
  }
  return *result_;
}

void RunningSum::run() {
  bytes::Sha256 sum;
  Result<void> read;
  std::unique_lock lock(mutex_);
  for (std::uint64_t at = 0; read && at < size_;) {
    changed_.wait(lock, [&] { return end_ > at || is_over_; });
    if (is_over_) return;
    const auto length = static_cast<std::size_t>(std::min(summed_step, end_ - at));
    lock.unlock();
    if (file_ != nullptr) read = file_->read(at, std::span(buffer_).first(length));
    if (read)
      sum.add(file_ != nullptr ? std::span(buffer_).first(length) : memory_.subspan(at, length));
    at += length;
    lock.lock();
  }
  if (read)
    result_ = sum.digest();
  else
    result_ = tl::unexpected<Error>(std::move(read.error()));
  changed_.notify_all();
}

}  // namespace weightmap
