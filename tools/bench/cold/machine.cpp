#include "tools/bench/cold/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "runtime/services/inspect/surroundings.hpp"

namespace weightmap::cli::bench {
namespace {

// Returns the text behind "model name : " in /proc/cpuinfo; some processors lack it.
std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("model name") && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", ::localtime_r(&now, &date));
  return text;
}

std::optional<std::uint64_t> read_ahead_in(const std::filesystem::path& setting) {
  std::ifstream file(setting);
  std::uint64_t kibibytes = 0;
  if (!(file >> kibibytes)) return std::nullopt;
  return kibibytes * 1024;
}

// Leaves the fields empty if the file is gone, or no checkpoint.
void describe_surroundings(const std::string& file, Machine& machine) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(file, OpenOptions::to_look());
  if (!checkpoint) return;
  const Surroundings around = surroundings(*checkpoint);
  machine.huge_pages = around.huge_page_setting.empty() ? "none" : around.huge_page_setting;
  machine.file_system = around.files.front().file_system;
  machine.device = around.files.front().device;
  machine.read_ahead_bytes = read_ahead_in(around.files.front().read_ahead_setting);
}

}  // namespace

Machine describe_machine(const std::string& file) {
  Machine machine;
  machine.processor = processor_name();
  machine.cores = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.memory_bytes = memory_bytes();
  machine.date = today();
  utsname system{};
  if (::uname(&system) == 0) machine.kernel = system.release;
  describe_surroundings(file, machine);
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
  // user nice system idle iowait irq softirq steal; the later ones are part of these.
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
