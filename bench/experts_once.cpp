// Plays the choices of a router over the experts of a file, in one way, in fresh processes, and
// prints what a token costs as one JSON object.
//
//   experts_once FILE --way WAY [--budget BYTES] [--trace FILE] [--tokens 60] [--processes N]
//                [--fill] [--press BYTES] [--cgroup FOLDER]
//
// The ways: mapping (page faults), random (with MADV_RANDOM), populate (MADV_POPULATE_READ of each
// expert), pread (two threads read each expert into the page cache, then the mapping), pread_lru
// (the same where mincore() says that it is not there, and what was not used for long is dropped),
// slots (own memory that two threads fill by pread), direct (the same with O_DIRECT), memory (all
// of the file in memory before the first token), weightmap (ResidentSet).
//
// "Computing" adds up the 64-bit words of an expert, once. The file is evicted first. The first
// third of the tokens is not counted; with --fill each expert is used once before. Equal arguments
// play equal choices in each way, and the sum of all words is printed. With several processes each
// plays choices of its own; weightmap's share one set. --cgroup joins that control group first;
// --press adds a process that takes so many bytes for a second and gives them back, again and
// again. bench/compare_experts.py compares.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/expert_trace.hpp"
#include "bench/expert_ways.hpp"
#include "bench/proc_value.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using weightmap::Checkpoint;

constexpr unsigned most_processes = 16;
constexpr double mib = 1 << 20;

struct Arguments {
  std::string file, way = "weightmap", trace, cgroup;
  std::uint64_t budget = 0, press = 0, disk_sample = std::uint64_t{256} << 20;
  std::size_t layers = 8, experts = 64, chosen = 4, tokens = 60, processes = 1;
  bool fill = false;
};

// Of the tokens that count, of one process.
struct Figures {
  bool is_done;
  std::size_t tokens;
  double seconds, waited;                      // all; of these in bring()
  long long disk_bytes, missed_bytes;          // read by this process; of the policy
  long long pss_kib;                           // at the end
  std::uint64_t sum;                           // of all tokens
  double acquire_us, release_us;               // of 8 units that are resident
  double least_slots, most_slots, last_slots;  // bytes of a set after its tokens
  unsigned long long huge_kib;                 // anonymous or shared memory in pages of 2 MiB
};

// What the processes have in common.
struct Common {
  pthread_barrier_t barrier;
  Figures figures[most_processes];

  void wait() { pthread_barrier_wait(&barrier); }
};

Common* make_common(std::size_t processes) {
  void* const memory =
      mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* const common = new (memory) Common{};
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&common->barrier, &attributes, static_cast<unsigned>(processes));
  return common;
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Plays one token; returns the seconds that were waited.
double play(const ExpertTrace& trace, std::size_t token, ExpertWay& way, std::uint64_t& sum) {
  double waited = 0;
  for (std::size_t layer = 0; layer < trace.layers; ++layer) {
    const std::vector<std::size_t> units = trace.units(token, layer);
    const Clock::time_point began = Clock::now();
    way.bring(units);
    waited += seconds_since(began);
    for (const std::size_t unit : units) sum += way.use(unit);
    way.end_use();
  }
  return waited;
}

// Each unit once, before the first token.
void use_all(ExpertWay& way, std::size_t units) {
  for (std::size_t unit = 0; unit < units; ++unit) {
    way.bring(std::span(&unit, 1));
    static_cast<void>(way.use(unit));
    way.end_use();
  }
}

// The medians of many calls for 8 units that have just been used.
void time_acquire(const weightmap::ResidentSet& set, const ExpertTrace& trace, Figures& figures) {
  std::vector<std::size_t> units;
  for (std::size_t layer = trace.layers; layer-- > 0 && units.size() < 8;)
    for (const std::size_t unit : trace.units(trace.tokens() - 1, layer))
      if (units.size() < 8) units.push_back(unit);
  std::vector<double> acquire, release;
  for (int call = 0; call < 20'000; ++call) {
    const Clock::time_point began = Clock::now();
    auto leases = set.acquire(units);
    acquire.push_back(seconds_since(began) * 1e6);
    if (!leases) return;
    const Clock::time_point ended = Clock::now();
    leases->clear();
    release.push_back(seconds_since(ended) * 1e6);
  }
  const auto median = [](std::vector<double>& times) {
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
  };
  figures.acquire_us = median(acquire);
  figures.release_us = median(release);
}

void note_slots(const ExpertWay& way, Figures& figures) {
  if (way.set() == nullptr) return;
  figures.last_slots = static_cast<double>(way.set()->stats().slot_bytes);
  figures.least_slots = std::min(figures.least_slots, figures.last_slots);
  figures.most_slots = std::max(figures.most_slots, figures.last_slots);
}

void run(const Arguments& arguments, const Checkpoint& checkpoint, const ExpertFile& experts,
         const ExpertTrace& trace, Common& common, Figures& figures) {
  const std::string share = arguments.processes > 1 ? "experts-" + std::to_string(getppid()) : "";
  const auto way = expert_way(arguments.way, checkpoint, experts, {arguments.budget, share});
  if (arguments.fill) use_all(*way, experts.units.size());
  common.wait();
  figures.least_slots = 1e18;
  long long disk_before = 0, missed_before = 0;
  for (std::size_t token = 0; token < trace.tokens(); ++token) {
    const bool counts = token >= trace.tokens() / 3;
    if (token == trace.tokens() / 3) {
      disk_before = proc_value("/proc/self/io", "read_bytes:");
      missed_before = static_cast<long long>(way->missed_bytes());
    }
    const Clock::time_point began = Clock::now();
    const double waited = play(trace, token, *way, figures.sum);
    if (!counts) continue;
    figures.seconds += seconds_since(began);
    figures.waited += waited;
    ++figures.tokens;
    note_slots(*way, figures);
  }
  figures.disk_bytes = proc_value("/proc/self/io", "read_bytes:") - disk_before;
  figures.missed_bytes = static_cast<long long>(way->missed_bytes()) - missed_before;
  common.wait();
  figures.pss_kib = proc_value("/proc/self/smaps_rollup", "Pss:");
  figures.huge_kib =
      static_cast<unsigned long long>(proc_value("/proc/self/smaps_rollup", "AnonHugePages:") +
                                      proc_value("/proc/self/smaps_rollup", "ShmemPmdMapped:"));
  if (way->set() != nullptr && arguments.press == 0) time_acquire(*way->set(), trace, figures);
  figures.is_done = true;
  common.wait();
}

// Takes memory, 16 MiB in 50 ms, and gives it back a second later, until it is ended. A process
// that takes more at once than there is free would be ended, or end another: nothing could give way
// in time.
[[noreturn]] void press(std::uint64_t bytes) {
  constexpr std::uint64_t step = std::uint64_t{16} << 20;
  for (;;) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    for (std::uint64_t done = 0; done < bytes; done += step) {
      std::memset(static_cast<std::byte*>(memory) + done, 1, std::min(step, bytes - done));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    munmap(memory, bytes);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

template <class Work>
pid_t in_child(const Work& work) {
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child != 0) return child;
  work();
  std::fflush(nullptr);
  _exit(0);
}

// Waits for the processes. If one fails, the others would wait for it, and are ended.
bool end_well(const std::vector<pid_t>& children) {
  bool are_well = true;
  for (std::size_t left = children.size(); left != 0;) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (std::ranges::find(children, ended) == children.end()) continue;
    --left;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (std::exchange(are_well, false))
      for (const pid_t child : children) kill(child, SIGKILL);
  }
  return are_well;
}

// Version 1 of control groups, or 2; -1 without one.
double peak_of(const std::string& cgroup) {
  if (cgroup.empty()) return -1;
  for (const char* const name : {"/memory.max_usage_in_bytes", "/memory.peak"}) {
    std::ifstream file(cgroup + name);
    if (double bytes = 0; file >> bytes) return bytes / mib;
  }
  return -1;
}

template <class Field>
double total(const std::vector<Figures>& all, Field Figures::*field) {
  double sum = 0;
  for (const Figures& each : all) sum += static_cast<double>(each.*field);
  return sum;
}

void print(const Arguments& arguments, const std::vector<Figures>& all, double rate,
           bool was_pressed) {
  double tokens_a_second = 0;
  std::uint64_t sum = 0;
  for (const Figures& each : all) {
    tokens_a_second += static_cast<double>(each.tokens) / each.seconds;
    sum += each.sum;
  }
  const double tokens = total(all, &Figures::tokens);
  // A set that is shared counts those of all processes.
  const double missed = all.size() == 1 || arguments.way != "weightmap"
                            ? total(all, &Figures::missed_bytes)
                            : static_cast<double>(all[0].missed_bytes);
  std::printf("{\"tokens_s\": %.3f, \"disk_mib\": %.2f", tokens_a_second,
              total(all, &Figures::disk_bytes) / mib / tokens);
  if (missed > 0)
    std::printf(", \"missed_mib\": %.2f, \"read_ratio\": %.4f", missed / mib / tokens,
                total(all, &Figures::disk_bytes) / missed);
  std::printf(", \"wait_ms\": %.2f", total(all, &Figures::waited) * 1e3 / tokens);
  if (missed > 0 && rate > 0 && all.size() == 1)
    std::printf(", \"wait_ratio\": %.4f", total(all, &Figures::waited) / (missed / rate));
  if (all[0].acquire_us > 0)
    std::printf(", \"acquire_us\": %.3f, \"release_us\": %.3f", all[0].acquire_us,
                all[0].release_us);
  if (all[0].most_slots > 0)
    std::printf(", \"least_slots_mib\": %.1f, \"most_slots_mib\": %.1f, \"last_slots_mib\": %.1f",
                all[0].least_slots / mib, all[0].most_slots / mib, all[0].last_slots / mib);
  if (arguments.press != 0) std::printf(", \"was_pressed\": %s", was_pressed ? "true" : "false");
  std::printf(", \"peak_mib\": %.1f, \"pss_mib\": %.1f, \"huge_mib\": %.1f, \"disk_mib_s\": %.0f, ",
              peak_of(arguments.cgroup), total(all, &Figures::pss_kib) / 1024,
              total(all, &Figures::huge_kib) / 1024, rate / mib);
  std::printf("\"sum\": %llu}\n", static_cast<unsigned long long>(sum % 1'000'000'007));
}

int join(const std::string& cgroup) {
  if (cgroup.empty()) return 0;
  std::ofstream processes(cgroup + "/cgroup.procs");
  if (processes << getpid() << std::flush) return 0;
  return std::perror(cgroup.c_str()), 1;
}

void evict(const ExpertFile& experts) {
  fdatasync(experts.file);
  posix_fadvise(experts.file, 0, 0, POSIX_FADV_DONTNEED);
}

int measure(const Arguments& arguments) {
  if (join(arguments.cgroup) != 0) return 1;
  const auto checkpoint = Checkpoint::open(arguments.file);
  if (!checkpoint) return std::fprintf(stderr, "%s\n", to_string(checkpoint.error()).c_str()), 1;
  const ExpertFile experts = expert_file(*checkpoint, arguments.file);
  evict(experts);
  const double before = disk_rate(experts, arguments.disk_sample);
  Common& common = *make_common(arguments.processes);
  std::vector<pid_t> children;
  for (std::size_t process = 0; process < arguments.processes; ++process)
    children.push_back(in_child([&] {
      // Opened anew: the library does not let a child use its parent's.
      const auto own = Checkpoint::open(arguments.file);
      if (!own) _exit(1);
      ExpertTrace trace = arguments.trace.empty()
                              ? modelled_trace(arguments.layers, arguments.experts,
                                               arguments.chosen, arguments.tokens, 42 + process)
                              : recorded_trace(arguments.trace);
      if (trace.tokens() > arguments.tokens) trace.choices.resize(arguments.tokens * trace.layers);
      if (trace.layers * trace.experts != experts.units.size()) {
        std::fprintf(stderr,
                     "experts_once: the file has %zu experts, the trace %zu layers of %zu\n",
                     experts.units.size(), trace.layers, trace.experts);
        _exit(1);
      }
      run(arguments, *own, experts, trace, common, common.figures[process]);
    }));
  const pid_t presser = arguments.press != 0 ? in_child([&] { press(arguments.press); }) : pid_t{0};
  const bool are_done = end_well(children);
  const bool was_pressed = presser != 0 && waitpid(presser, nullptr, WNOHANG) == 0;
  if (was_pressed) kill(presser, SIGKILL), waitpid(presser, nullptr, 0);
  if (!are_done) return std::fprintf(stderr, "experts_once: a process did not end well\n"), 1;
  const double after = disk_rate(experts, arguments.disk_sample);
  print(arguments, {common.figures, common.figures + arguments.processes}, (before + after) / 2,
        was_pressed);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Plays the choices of a router over the experts of a file, in one way.");
  app.add_option("FILE", arguments.file)->required();
  app.add_option("--way", arguments.way,
                 "mapping, random, populate, pread, pread_lru, slots, direct, memory, weightmap");
  app.add_option("--budget", arguments.budget,
                 "Bytes for experts, of the ways that have one; weightmap: 0 is automatic");
  app.add_option("--trace", arguments.trace, "Of bench/record_routes.py; default: a model of one");
  app.add_option("--layers", arguments.layers, "Of the model")->check(CLI::PositiveNumber);
  app.add_option("--experts", arguments.experts, "Of a layer of it")->check(CLI::Range(8, 4096));
  app.add_option("--chosen", arguments.chosen, "In a layer of it")->check(CLI::PositiveNumber);
  app.add_option("--tokens", arguments.tokens, "At most")->check(CLI::Range(3, 1'000'000));
  app.add_option("--processes", arguments.processes)->check(CLI::Range(1u, most_processes));
  app.add_flag("--fill", arguments.fill, "Use each expert once before the first token");
  app.add_option("--press", arguments.press, "Bytes that another process takes and gives back");
  app.add_option("--cgroup", arguments.cgroup, "Folder of a control group to join");
  app.add_option("--disk-sample", arguments.disk_sample,
                 "Bytes read to know the disk's rate, twice");
  CLI11_PARSE(app, argc, argv);
  return measure(arguments);
}
