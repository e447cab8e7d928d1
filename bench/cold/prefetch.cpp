#include "bench/cold/prefetch.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace weightmap::cli::bench {
namespace {

constexpr std::size_t step_bytes = std::size_t{2} << 20;
constexpr int thread_count = 2;

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

void touch(std::span<const std::byte> step) {
  for (std::size_t at = 0; at < step.size(); at += page_bytes())
    static_cast<void>(*static_cast<const volatile std::byte*>(&step[at]));
}

}  // namespace

Prefetcher::Prefetcher(std::span<const std::byte> mapping, int descriptor, Prefetch method)
    : mapping_(mapping), descriptor_(descriptor), method_(method) {}

Prefetcher::~Prefetcher() {
  for (std::thread& thread : threads_) thread.join();
  ::close(descriptor_);
}

Result<std::unique_ptr<Prefetcher>> Prefetcher::start(const Checkpoint& checkpoint,
                                                      const std::string& file,
                                                      std::span<const NamedTensor> tensors,
                                                      Prefetch method) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return failure(ErrorCode::io,
                   "cannot open the file: " + std::generic_category().message(errno));
  std::unique_ptr<Prefetcher> made(new Prefetcher(checkpoint.mapping(), descriptor, method));
  for (const NamedTensor& tensor : tensors) {
    const std::size_t end = tensor.file_offset + tensor.view.bytes().size();
    for (std::size_t at = tensor.file_offset / page_bytes() * page_bytes(); at < end;
         at += step_bytes)
      made->steps_.push_back(made->mapping_.subspan(at, std::min(step_bytes, end - at)));
  }
  for (int i = 0; i < thread_count; ++i)
    made->threads_.emplace_back([prefetcher = made.get()] { prefetcher->run(); });
  return made;
}

void Prefetcher::run() {
  std::vector<char> scratch(method_ == Prefetch::read ? step_bytes : 0);
  for (std::size_t step; (step = next_++) < steps_.size();) bring_in(steps_[step], scratch);
}

void Prefetcher::bring_in(std::span<const std::byte> step, std::vector<char>& scratch) const {
  void* const address = const_cast<std::byte*>(step.data());
  const auto offset = static_cast<off_t>(step.data() - mapping_.data());
  switch (method_) {
    case Prefetch::fault:
      return touch(step);
    case Prefetch::read:
      static_cast<void>(!::pread(descriptor_, scratch.data(), step.size(), offset));
      return;
    case Prefetch::readahead:
      ::readahead(descriptor_, offset, step.size());
      return;
    case Prefetch::willneed:
      ::madvise(address, step.size(), MADV_WILLNEED);
      return;
    case Prefetch::sequential:
      ::madvise(address, step.size(), MADV_SEQUENTIAL);
      touch(step);
      ::madvise(address, step.size(), MADV_NORMAL);
      return;
  }
}

}  // namespace weightmap::cli::bench
