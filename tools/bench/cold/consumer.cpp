#include "tools/bench/cold/consumer.hpp"

#include <functional>
#include <optional>
#include <span>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/direct_reader.hpp"
#include "tools/bench/cold/plain_files.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/bench/cold/wanted_tensors.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli::bench {
namespace {

using Bytes = std::span<const std::byte>;

// `done` receives the position of each tensor that was read.
std::uint64_t add_up(
    const std::vector<Bytes>& tensors, Stopwatch& watch,
    const std::function<void(std::size_t)>& done = [](std::size_t) {}) {
  // volatile, since the compiler must not remove the first fault.
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

// Each reads the tensors, and returns the sum of their bytes.

Result<std::uint64_t> read_mapped(const NativeEngine& engine, const Checkpoint& checkpoint,
                                  const std::vector<NamedTensor>& tensors, Stopwatch& watch) {
  std::optional<Warmer> warmer;
  if (engine.way == Way::warm) {
    TRY_ASSIGN(warmer, start_warmer(checkpoint, tensors, engine));
  }
  watch.opened();
  const std::uint64_t sum = add_up(views(tensors), watch, [&](std::size_t i) {
    if (warmer) warmer->passed(tensors[i].index);
  });
  if (warmer)
    if (const auto report = warmer->wait(); !report) return tl::unexpected<Error>(report.error());
  return sum;
}

// Returns copies by position in Checkpoint::source(). They must live until the sample ends, since
// their memory is a part of it.
Result<std::vector<CopiedFile>> copy_files(const Checkpoint& checkpoint) {
  std::vector<CopiedFile> copies;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i) {
    if (checkpoint.source(i).is_copy) break;  // memory, behind all files
    TRY_ASSIGN(CopiedFile copy, CopiedFile::read(checkpoint.source(i).path.string()));
    copies.push_back(std::move(copy));
  }
  return copies;
}

Result<std::uint64_t> read_copied(const Checkpoint& checkpoint,
                                  const std::vector<NamedTensor>& tensors,
                                  std::vector<CopiedFile>& copies, Stopwatch& watch) {
  TRY_ASSIGN(copies, copy_files(checkpoint));
  std::vector<Bytes> bytes;
  for (const NamedTensor& tensor : tensors)
    bytes.push_back(
        copies[tensor.source].bytes().subspan(tensor.file_offset, tensor.view.nbytes()));
  watch.opened();
  return add_up(bytes, watch);
}

}  // namespace

Result<Consumed> consume(const NativeEngine& engine, const std::string& file,
                         const std::vector<std::string>& names) {
  std::optional<DirectBuffers> buffers;
  if (engine.way == Way::direct) buffers.emplace();
  Stopwatch watch;
  const bool maps = engine.way == Way::map || engine.way == Way::warm;
  TRY_ASSIGN(const Checkpoint checkpoint, open(file, maps && engine.huge_pages));
  TRY_ASSIGN(const std::vector<NamedTensor> tensors, wanted_tensors(checkpoint, names));
  std::vector<CopiedFile> copies;
  if (buffers) watch.opened();
  TRY_ASSIGN(const std::uint64_t sum, buffers ? read_directly(checkpoint, tensors, *buffers, watch)
                                      : maps  ? read_mapped(engine, checkpoint, tensors, watch)
                                              : read_copied(checkpoint, tensors, copies, watch));
  Consumed consumed{watch.stop(), total_bytes(tensors)};
  consumed.sample.checksum = sum;
  return consumed;
}

}  // namespace weightmap::cli::bench
