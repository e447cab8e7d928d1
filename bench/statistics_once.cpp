// Reads every tensor of a file that is cached: as bytes, or for its statistics.
//
//   statistics_once read|stats FILE
//
// For bench/interleave, which tells how many times as long the second takes:
//   interleave --rounds 15 read="statistics_once read FILE" stats="statistics_once stats FILE"
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/statistics.hpp"

namespace {

using namespace weightmap;

int fail(const char* what) {
  std::fprintf(stderr, "statistics_once: %s\n", what);
  return 1;
}

// By read() into one buffer, which is the least that a program can do with a file.
int read_all(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail("cannot open the file");
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  ssize_t count;
  while ((count = ::read(file, buffer.data(), buffer.size())) > 0) {
  }
  ::close(file);
  return count == 0 ? 0 : fail("cannot read the file");
}

int sum_up_all(const char* path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return fail(checkpoint.error().message.c_str());
  double sum = 0;
  for (const NamedTensor& tensor : checkpoint->tensors()) {
    const Result<TensorStatistics> found = statistics(tensor.view);
    if (!found) return fail(found.error().message.c_str());
    sum += found->mean.value_or(0);
  }
  return std::isfinite(sum) ? 0 : fail("the tensors are not finite");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fail("read|stats FILE");
  const auto start = std::chrono::steady_clock::now();
  const int status = argv[1] == std::string_view("read") ? read_all(argv[2]) : sum_up_all(argv[2]);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (status == 0) std::printf("{\"seconds\": %.6f}\n", time.count());
  return status;
}
