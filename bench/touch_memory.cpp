// Touches and frees memory, so that the process after it finds pages that the machine has just
// used.
//
//   touch_memory MIB
//
// A virtual machine may give pages that have been free for a while back to its host; touching one
// again then costs many times more. Benchmarks run this before each sample.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const std::size_t bytes = argc == 2 ? std::strtoull(argv[1], nullptr, 10) << 20 : 0;
  if (bytes == 0) {
    std::fprintf(stderr, "usage: touch_memory MIB\n");
    return 2;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, bytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  return 0;
}
