// hostile_runner MANIFEST [NAME | --part N PARTS]: opens every file that generate.py made, or those
// whose names begin with NAME, or each PARTS-th one from the N-th on, at two levels of proof, large
// ones at one. Reads all that an open shows, and compares with the manifest. Prints a line for each
// fault; the status is 1 if there is one.
//
// The files are opened in a child, with limits on memory and time that only a fault would reach. If
// it dies, the file that it was at is to blame, and another child goes on behind it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "tests/hostile/check_file.hpp"
#include "tests/hostile/expectation.hpp"
#include "tests/hostile/process_memory.hpp"

// What is freed is kept apart for a while, which is memory that the files' bounds do not allow for;
// and RLIMIT_AS would end a sanitizer, so that its own bound takes the place of it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=4:hard_rss_limit_mb=2048:max_allocation_size_mb=1024";
}

namespace weightmap::test {
namespace {

// Both are far above what the slowest machine needs for a file: they end what hangs.
constexpr rlim_t most_cpu_seconds = 900;
constexpr unsigned most_seconds_a_file = 300;
constexpr rlim_t most_memory = rlim_t{1} << 30;  // besides the mapping of the file itself
#ifdef NDEBUG
constexpr bool keeps_closed_addresses = false;
#else
constexpr bool keeps_closed_addresses = true;  // see mmap/closed_range.cpp; the limit counts them
#endif

// What the child tells its parent.
struct Progress {
  std::atomic<std::size_t> at;
  std::atomic<std::size_t> complaints;
  std::atomic<std::uint64_t> sum;
  std::atomic<std::size_t> slowest;  // the file that took most time of the processor
  std::atomic<std::clock_t> slowest_took;
};

void limit(int resource, rlim_t soft) {
  rlimit both{};
  getrlimit(resource, &both);
  both.rlim_cur = std::min(soft, both.rlim_max);
  setrlimit(resource, &both);
}

void limit_memory(const HostileFile& file) {
  if (is_sanitized || keeps_closed_addresses) return;
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(file.path, none);
  limit(RLIMIT_AS, most_memory + (none ? 0 : size));
}

FileReport check(const HostileFile& file, Verify level) {
  try {
    return check_file(file, level);
  } catch (const std::exception& error) {
    return {{file.name + " (" + std::string(to_string(level)) + "): throws " + error.what()}, 0};
  }
}

// A mass of something takes its time at each level, so that it has the one that reads every byte.
bool is_large(const HostileFile& file) {
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(file.path, none);
  const auto size =
      std::filesystem::file_size(is_folder ? file.path / ".metadata" : file.path, none);
  return !none && size > std::uintmax_t{512} << 10;
}

bool is_skipped(const HostileFile& file, Verify level) {
  return level == Verify::crc ? file.is_huge : !file.is_huge && is_large(file);
}

[[noreturn]] void run_child(const std::vector<HostileFile>& files, Progress& progress) {
  limit(RLIMIT_CPU, most_cpu_seconds);
  limit(RLIMIT_CORE, 0);
  for (; progress.at < files.size(); ++progress.at) {
    const HostileFile& file = files[progress.at];
    limit_memory(file);
    alarm(most_seconds_a_file);
    for (const Verify level : {Verify::chain, Verify::crc}) {
      if (is_skipped(file, level)) continue;
      const std::clock_t before = std::clock();
      const FileReport report = check(file, level);
      if (const std::clock_t took = std::clock() - before; took > progress.slowest_took) {
        progress.slowest_took = took;
        progress.slowest = progress.at.load();
      }
      for (const std::string& complaint : report.complaints) std::printf("%s\n", complaint.c_str());
      progress.complaints += report.complaints.size();
      progress.sum += report.sum;
    }
  }
  std::exit(0);
}

std::string death_of(int status) {
  if (WIFSIGNALED(status)) return std::string("killed by ") + strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

std::vector<HostileFile> part_of(std::vector<HostileFile> files, std::size_t number,
                                 std::size_t parts) {
  std::vector<HostileFile> chosen;
  for (std::size_t i = number - 1; i < files.size(); i += parts)
    chosen.push_back(std::move(files[i]));
  return chosen;
}

int run(const std::vector<HostileFile>& files) {
  void* const shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& progress = *new (shared) Progress{0, 0, 0, 0, 0};
  for (bool done = false; !done;) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) run_child(files, progress);
    int status = 0;
    waitpid(child, &status, 0);
    done = progress.at >= files.size();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++progress.complaints;
    std::printf("%s: the process that opened it was %s\n",
                done ? "(at the end)" : files[progress.at].name.c_str(), death_of(status).c_str());
    ++progress.at;
  }
  std::printf("slowest: %s, %ld ms\n", files[progress.slowest].name.c_str(),
              progress.slowest_took * 1000 / CLOCKS_PER_SEC);
  std::printf("%zu files, %zu complaints, sum %llx\n", files.size(), progress.complaints.load(),
              static_cast<unsigned long long>(progress.sum.load()));
  return progress.complaints == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weightmap::test

int main(int count, char** arguments) {
  using namespace weightmap::test;
  const bool is_part = count == 5 && std::strcmp(arguments[2], "--part") == 0;
  const unsigned long number = is_part ? std::strtoul(arguments[3], nullptr, 10) : 1;
  const unsigned long parts = is_part ? std::strtoul(arguments[4], nullptr, 10) : 1;
  if ((count != 2 && count != 3 && !is_part) || number == 0 || number > parts) {
    std::fprintf(stderr, "usage: %s MANIFEST [NAME | --part N PARTS]\n", arguments[0]);
    return 2;
  }
  std::vector<HostileFile> files = part_of(read_manifest(arguments[1]), number, parts);
  if (count == 3)
    std::erase_if(files, [&](const HostileFile& f) { return !f.name.starts_with(arguments[2]); });
  if (files.empty()) {
    std::fprintf(stderr, "no such files\n");
    return 2;
  }
  return run(files);
}
