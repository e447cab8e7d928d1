// Shows that processes which open the same checkpoint share one copy of its bytes in memory.
//
//   shared_pages FILE
//
// Two processes open the file and read all of it. Rss counts the pages that a process has mapped;
// Pss divides each page by the number of processes that map it. So Pss is half of Rss.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "weightmap/checkpoint.hpp"

namespace {

struct Usage {
  long rss_kib = 0;
  long pss_kib = 0;
};

// Returns the figures of /proc/self/smaps for the mapping that begins at `address`.
Usage usage_of(const void* address) {
  std::ostringstream prefix;
  prefix << std::hex << reinterpret_cast<std::uintptr_t>(address) << '-';
  std::ifstream smaps("/proc/self/smaps");
  Usage usage;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    // A mapping begins with "7f12a000-7f34b000 r--s ..."; its fields look like "Rss:  1234 kB".
    if (line.find('-') < line.find(' ')) inside = line.starts_with(prefix.str());
    if (!inside) continue;
    std::sscanf(line.c_str(), "Rss: %ld kB", &usage.rss_kib);
    std::sscanf(line.c_str(), "Pss: %ld kB", &usage.pss_kib);
  }
  return usage;
}

// Reads one byte of each page, so that each is mapped. Returns the last byte of their sum.
char touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 4096) sum += std::to_integer<unsigned>(bytes[i]);
  return static_cast<char>(sum);
}

// Opens and reads the file, reports that on `ready`, and keeps it open until `done` is closed.
int second_process(const char* path, int ready, int done) {
  const auto checkpoint = weightmap::Checkpoint::open(path);
  if (!checkpoint) return 1;
  char byte = touch(checkpoint->mapping());
  if (write(ready, &byte, 1) != 1) return 1;
  return read(done, &byte, 1) == 0 ? 0 : 1;
}

int first_process(const char* path, int ready) {
  const auto checkpoint = weightmap::Checkpoint::open(path);
  if (!checkpoint) {
    std::cerr << checkpoint.error() << '\n';
    return 1;
  }
  const char sum = touch(checkpoint->mapping());
  char other_sum = 0;
  if (read(ready, &other_sum, 1) != 1 || other_sum != sum) return 1;
  const Usage usage = usage_of(checkpoint->mapping().data());
  std::cout << "each process maps " << usage.rss_kib << " KiB (Rss); its share of them is "
            << usage.pss_kib << " KiB (Pss)\n";
  return usage.rss_kib > 0 && usage.pss_kib <= usage.rss_kib / 2 + 4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int ready[2];
  int done[2];
  if (argc != 2 || pipe(ready) != 0 || pipe(done) != 0) return 2;
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    close(ready[0]);
    close(done[1]);
    _exit(second_process(argv[1], ready[1], done[0]));
  }
  close(ready[1]);
  close(done[0]);
  const int shared = first_process(argv[1], ready[0]);
  close(done[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? shared : 1;
}
