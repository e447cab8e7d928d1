// Brings a model to its next version by a delta of xor and xxh3-128, in this fresh process, in one
// way, and prints the time as one JSON object.
//
//   delta_once WAY BASE DELTA TARGET [--threads 1]
//
// The ways: decompress (all frames, each into the same memory, and nothing else); fresh (the same,
// each into new memory, as zstd's bindings for Python do it); patch (in place:
// a copy of BASE's weights in the folder TARGET, made before the clock starts, is mapped writable;
// each tensor is decompressed, combined in the mapping, and summed there, as the engines that patch
// files do it); apply (weightmap's apply_delta() to the new folder TARGET). Files are in the page
// cache, and nothing waits for the disk. TARGET is removed at the end. bench/interleave compares.
#define XXH_INLINE_ALL
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/delta.hpp"

namespace {

namespace fs = std::filesystem;
using weightmap::Checkpoint;
using weightmap::NamedTensor;
using Bytes = std::span<const std::byte>;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "delta_once: %s\n", why.c_str());
  std::exit(1);
}

Checkpoint opened(const fs::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) fail(to_string(checkpoint.error()));
  return std::move(*checkpoint);
}

std::uint64_t size_of(Bytes frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) fail("no frame");
  return size;
}

// Calls work(thread, number) for all numbers.
void in_threads(std::size_t threads, std::size_t count,
                const std::function<void(std::size_t, std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> running;
  for (std::size_t thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      for (std::size_t number = next++; number < count; number = next++) work(thread, number);
    });
  for (std::thread& each : running) each.join();
}

struct Decompressors {
  Decompressors(std::size_t threads, std::uint64_t largest) : memory(threads), contexts(threads) {
    for (std::size_t i = 0; i < threads; ++i) {
      memory[i].assign(largest, std::byte{1});
      contexts[i] = ZSTD_createDCtx();
    }
  }
  ~Decompressors() {
    for (ZSTD_DCtx* context : contexts) ZSTD_freeDCtx(context);
  }
  Bytes run(std::size_t thread, Bytes frame) {
    const std::size_t size = ZSTD_decompressDCtx(contexts[thread], memory[thread].data(),
                                                 memory[thread].size(), frame.data(), frame.size());
    if (ZSTD_isError(size) != 0) fail(ZSTD_getErrorName(size));
    return Bytes(memory[thread]).first(size);
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<ZSTD_DCtx*> contexts;
};

// Files mapped writable.
class Patched {
 public:
  Patched(const Checkpoint& base, const fs::path& target) {
    fs::create_directory(target);
    for (std::size_t i = 0; i < base.source_count(); ++i) {
      const fs::path path = target / base.source(i).path.filename();
      fs::copy_file(base.source(i).path, path);
      const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      const std::size_t size = fs::file_size(path);
      void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (mapped == MAP_FAILED) fail("mmap");
      ::close(file);
      files_.push_back(static_cast<std::byte*>(mapped));
    }
  }
  std::byte* at(const NamedTensor& tensor) const {
    return files_[tensor.source] + tensor.file_offset;
  }

 private:
  std::vector<std::byte*> files_;  // until the process ends
};

struct Arguments {
  std::string way, base, delta, target;
  std::size_t threads = 1;
};

double measure(const Arguments& arguments) {
  const Checkpoint base = opened(arguments.base);
  const Checkpoint delta = opened(arguments.delta);
  std::uint64_t largest = 0;
  for (const NamedTensor& tensor : delta.tensors())
    largest = std::max(largest, size_of(tensor.view.stored_bytes()));
  const auto since = [](Clock::time_point began) {
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  };
  if (arguments.way == "apply") {
    const fs::path folders[] = {arguments.delta};
    const Clock::time_point began = Clock::now();
    const auto report = weightmap::apply_delta(arguments.base, folders, arguments.target,
                                               {.threads = arguments.threads, .durable = false});
    const double taken = since(began);
    if (!report) fail(to_string(report.error()));
    return taken;
  }
  Decompressors decompressors(arguments.threads, largest);
  if (arguments.way == "fresh") {
    const Clock::time_point began = Clock::now();
    in_threads(arguments.threads, delta.tensors().size(), [&](std::size_t thread, std::size_t i) {
      const Bytes frame = delta.tensors()[i].view.stored_bytes();
      const std::unique_ptr<std::byte[]> memory(new std::byte[size_of(frame)]);
      const std::size_t size = ZSTD_decompressDCtx(decompressors.contexts[thread], memory.get(),
                                                   size_of(frame), frame.data(), frame.size());
      if (ZSTD_isError(size) != 0) fail(ZSTD_getErrorName(size));
    });
    return since(began);
  }
  if (arguments.way == "decompress") {
    const Clock::time_point began = Clock::now();
    in_threads(arguments.threads, delta.tensors().size(), [&](std::size_t thread, std::size_t i) {
      decompressors.run(thread, delta.tensors()[i].view.stored_bytes());
    });
    return since(began);
  }
  const Patched files(base, arguments.target);
  const Clock::time_point began = Clock::now();
  in_threads(arguments.threads, delta.tensors().size(), [&](std::size_t thread, std::size_t i) {
    const NamedTensor changed = delta.tensors()[i];
    const auto tensor = base.get(changed.name);
    if (!tensor) fail(to_string(tensor.error()));
    const Bytes with = decompressors.run(thread, changed.view.stored_bytes());
    std::byte* const bytes = files.at(*tensor);
    for (std::size_t at = 0; at < with.size(); ++at) bytes[at] ^= with[at];
    static std::atomic<std::uint64_t> sums{0};
    sums += XXH3_128bits(bytes, with.size()).low64;
  });
  return since(began);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Brings a model to its next version in one way");
  Arguments arguments;
  app.add_option("WAY", arguments.way)
      ->required()
      ->check(CLI::IsMember({"decompress", "fresh", "patch", "apply"}));
  app.add_option("BASE", arguments.base)->required();
  app.add_option("DELTA", arguments.delta)->required();
  app.add_option("TARGET", arguments.target)->required();
  app.add_option("--threads", arguments.threads);
  CLI11_PARSE(app, argc, argv);
  const double taken = measure(arguments);
  std::error_code ignored;
  fs::remove_all(arguments.target, ignored);
  std::printf("{\"taken_us\": %.0f}\n", taken);
}
