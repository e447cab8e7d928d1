// A worker as a server has many of them: opens a checkpoint, reads every byte, and stays.
//
//   worker [FILE]
//
// Prints "ready" and ends when its standard input does. Without FILE it does nothing else, which
// shows what the process itself takes.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "weightmap/checkpoint.hpp"

int main(int argc, char** argv) {
  std::optional<weightmap::Checkpoint> checkpoint;
  std::uint64_t sum = 0;
  if (argc == 2) {
    auto opened = weightmap::Checkpoint::open(argv[1]);
    if (!opened) {
      std::fprintf(stderr, "worker: %s\n", to_string(opened.error()).c_str());
      return 1;
    }
    checkpoint = std::move(*opened);
    for (const std::byte byte : checkpoint->mapping()) sum += std::to_integer<std::uint64_t>(byte);
  }
  std::printf("ready %llu\n", static_cast<unsigned long long>(sum));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
