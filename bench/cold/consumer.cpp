#include "bench/cold/consumer.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "bench/cold/checksum.hpp"
#include "bench/cold/copied_file.hpp"
#include "bench/cold/direct_reader.hpp"
#include "bench/cold/stopwatch.hpp"
#include "bench/cold/wanted_tensors.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli::bench {
namespace {

using Bytes = std::span<const std::byte>;

// `done` gets the position of each tensor that was read.
std::uint64_t add_up(
    const std::vector<Bytes>& tensors, Stopwatch& watch,
    const std::function<void(std::size_t)>& done = [](std::size_t) {}) {
  // The compiler must not leave the byte out: it is the first fault.
  [[maybe_unused]] const volatile std::byte first = tensors.front().front();
  watch.read_first_byte();
  std::uint64_t sum = checksum(tensors.front());
  watch.read_first_tensor();
  done(0);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    sum += checksum(tensors[i]);
    done(i);
  }
  watch.read_all();
  return sum;
}

Result<Checkpoint> open(const std::string& file, bool huge_pages) {
  OpenOptions options = OpenOptions::to_look();
  options.huge_pages = huge_pages;
  return Checkpoint::open(file, options);
}

std::vector<Bytes> views(const std::vector<NamedTensor>& tensors) {
  std::vector<Bytes> bytes;
  bytes.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) bytes.push_back(tensor.view.bytes());
  return bytes;
}

Result<Warmer> start_warmer(const Checkpoint& checkpoint, const std::vector<NamedTensor>& tensors,
                            const NativeEngine& engine) {
  WarmOptions options;
  options.follow = engine.window;
  options.drop_behind = engine.window;
  for (const NamedTensor& tensor : tensors) options.tensors.push_back(tensor.index);
  return Warmer::start(checkpoint, options);
}

Result<Consumed> consume_mapped(const NativeEngine& engine, const std::string& file,
                                const std::vector<std::string>& names) {
  Stopwatch watch;
  const Result<Checkpoint> checkpoint = open(file, engine.huge_pages);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<std::vector<NamedTensor>> tensors = wanted_tensors(*checkpoint, names);
  if (!tensors) return tl::unexpected<Error>(tensors.error());
  std::optional<Warmer> warmer;
  if (engine.way == Way::warm) {
    Result<Warmer> started = start_warmer(*checkpoint, *tensors, engine);
    if (!started) return tl::unexpected<Error>(started.error());
    warmer = std::move(*started);
  }
  std::unique_ptr<Prefetcher> prefetcher;
  if (engine.way == Way::prefetch) {
    auto started = Prefetcher::start(*checkpoint, *tensors, engine.method);
    if (!started) return tl::unexpected<Error>(started.error());
    prefetcher = std::move(*started);
  }
  watch.opened();
  const std::uint64_t sum = add_up(views(*tensors), watch, [&](std::size_t i) {
    if (warmer) warmer->passed((*tensors)[i].index);
  });
  if (warmer)
    if (const auto report = warmer->wait(); !report) return tl::unexpected<Error>(report.error());
  prefetcher.reset();
  Consumed consumed{watch.stop(), total_bytes(*tensors)};
  consumed.sample.checksum = sum;
  return consumed;
}

// By their positions among Checkpoint::source().
Result<std::vector<CopiedFile>> copy_files(const Checkpoint& checkpoint) {
  std::vector<CopiedFile> copies;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i) {
    if (checkpoint.source(i).is_copy) break;  // memory, behind all files
    Result<CopiedFile> copy = CopiedFile::read(checkpoint.source(i).path.string());
    if (!copy) return tl::unexpected<Error>(copy.error());
    copies.push_back(std::move(*copy));
  }
  return copies;
}

Result<Consumed> consume_copied(const std::string& file, const std::vector<std::string>& names) {
  Stopwatch watch;
  const Result<Checkpoint> checkpoint = open(file, false);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<std::vector<NamedTensor>> tensors = wanted_tensors(*checkpoint, names);
  if (!tensors) return tl::unexpected<Error>(tensors.error());
  const Result<std::vector<CopiedFile>> copies = copy_files(*checkpoint);
  if (!copies) return tl::unexpected<Error>(copies.error());
  std::vector<Bytes> bytes;
  for (const NamedTensor& tensor : *tensors)
    bytes.push_back(
        (*copies)[tensor.source].bytes().subspan(tensor.file_offset, tensor.view.nbytes()));
  watch.opened();
  const std::uint64_t sum = add_up(bytes, watch);
  Consumed consumed{watch.stop(), total_bytes(*tensors)};
  consumed.sample.checksum = sum;
  return consumed;
}

Result<Consumed> consume_directly(const std::string& file, const std::vector<std::string>& names) {
  DirectBuffers buffers;
  Stopwatch watch;
  const Result<Checkpoint> checkpoint = open(file, false);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<std::vector<NamedTensor>> tensors = wanted_tensors(*checkpoint, names);
  if (!tensors) return tl::unexpected<Error>(tensors.error());
  watch.opened();
  const Result<std::uint64_t> sum = read_directly(*checkpoint, *tensors, buffers, watch);
  if (!sum) return tl::unexpected<Error>(sum.error());
  Consumed consumed{watch.stop(), total_bytes(*tensors)};
  consumed.sample.checksum = *sum;
  return consumed;
}

}  // namespace

Result<Consumed> consume(const NativeEngine& engine, const std::string& file,
                         const std::vector<std::string>& names) {
  switch (engine.way) {
    case Way::map:
    case Way::warm:
    case Way::prefetch:
      return consume_mapped(engine, file, names);
    case Way::copy:
      return consume_copied(file, names);
    case Way::direct:
      return consume_directly(file, names);
  }
  return failure(ErrorCode::invalid_argument, "no such way");
}

}  // namespace weightmap::cli::bench
