#include "bench/cold/prefetch.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "bench/cold/page_bytes.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::size_t step_bytes = std::size_t{2} << 20;
constexpr int thread_count = 2;

void touch(std::span<const std::byte> step) {
  for (std::size_t at = 0; at < step.size(); at += page_bytes())
    static_cast<void>(*static_cast<const volatile std::byte*>(&step[at]));
}

}  // namespace

Prefetcher::Prefetcher(std::vector<RawFile> files, Prefetch method)
    : files_(std::move(files)), method_(method) {}

Prefetcher::~Prefetcher() {
  for (std::thread& thread : threads_) thread.join();
}

Result<std::unique_ptr<Prefetcher>> Prefetcher::start(const Checkpoint& checkpoint,
                                                      std::span<const NamedTensor> tensors,
                                                      Prefetch method) {
  Result<std::vector<RawFile>> files = open_sources(checkpoint);
  if (!files) return tl::unexpected<Error>(files.error());
  std::unique_ptr<Prefetcher> made(new Prefetcher(std::move(*files), method));
  for (const NamedTensor& tensor : tensors) made->add(checkpoint, tensor);
  for (int i = 0; i < thread_count; ++i)
    made->threads_.emplace_back([prefetcher = made.get()] { prefetcher->run(); });
  return made;
}

void Prefetcher::add(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  const std::uint64_t end = tensor.file_offset + tensor.view.nbytes();
  for (std::uint64_t at = tensor.file_offset / page_bytes() * page_bytes(); at < end;
       at += step_bytes)
    steps_.push_back(
        {checkpoint.mapping().subspan(checkpoint.source(tensor.source).mapping_offset + at,
                                      std::min<std::uint64_t>(step_bytes, end - at)),
         files_[tensor.source].descriptor(), at});
}

void Prefetcher::run() {
  std::vector<char> scratch(method_ == Prefetch::read ? step_bytes : 0);
  for (std::size_t step; (step = next_++) < steps_.size();) bring_in(steps_[step], scratch);
}

void Prefetcher::bring_in(const Step& step, std::vector<char>& scratch) const {
  void* const address = const_cast<std::byte*>(step.bytes.data());
  const std::size_t size = step.bytes.size();
  const auto offset = static_cast<off_t>(step.offset);
  switch (method_) {
    case Prefetch::fault:
      return touch(step.bytes);
    case Prefetch::read:
      static_cast<void>(!::pread(step.file, scratch.data(), size, offset));
      return;
    case Prefetch::readahead:
      ::readahead(step.file, offset, size);
      return;
    case Prefetch::willneed:
      ::madvise(address, size, MADV_WILLNEED);
      return;
    case Prefetch::sequential:
      ::madvise(address, size, MADV_SEQUENTIAL);
      touch(step.bytes);
      ::madvise(address, size, MADV_NORMAL);
      return;
  }
}

}  // namespace weightmap::cli::bench
