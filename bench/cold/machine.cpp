#include "bench/cold/machine.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace weightmap::cli::bench {
namespace {

// What follows "model name : " in /proc/cpuinfo; not every processor has that.
std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("model name") && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "unknown";
}

// The word in brackets: "always [madvise] never".
std::string huge_page_setting() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return close == std::string::npos ? "none" : line.substr(open + 1, close - open - 1);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", ::localtime_r(&now, &date));
  return text;
}

// The line of the mount table for the file's device: its type and its source.
void describe_mount(const std::string& file, Machine& machine) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return;
  const std::string wanted =
      std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
  std::ifstream lines("/proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, device;
    words >> word >> word >> device;
    if (device != wanted) continue;
    // Optional fields end with a dash.
    while (words >> word && word != "-") {
    }
    words >> machine.file_system >> machine.device;
    return;
  }
}

}  // namespace

Machine describe_machine(const std::string& file) {
  Machine machine;
  machine.processor = processor_name();
  machine.cores = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.memory_bytes = memory_bytes();
  machine.kernel = kernel_release();
  machine.huge_pages = huge_page_setting();
  machine.date = today();
  describe_mount(file, machine);
  return machine;
}

std::uint64_t memory_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t available_memory() {
  std::ifstream lines("/proc/meminfo");
  std::string word;
  std::uint64_t kibibytes = 0;
  while (lines >> word)
    if (word == "MemAvailable:" && lines >> kibibytes) return kibibytes * 1024;
  return 0;
}

ProcessorTime ProcessorTime::now() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  ProcessorTime time;
  std::uint64_t ticks = 0;
  // user nice system idle iowait irq softirq steal; what follows is part of these.
  constexpr int steal = 7;
  for (int i = 0; i <= steal && file >> ticks; ++i) {
    time.all += ticks;
    if (i == steal) time.stolen = ticks;
  }
  return time;
}

double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace weightmap::cli::bench
