#include "tests/hostile/process_memory.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace weightmap::test {
namespace {

std::uint64_t status_kilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == field) {
      std::uint64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes;
    }
  return 0;
}

}  // namespace

PeakMemory::PeakMemory() {
  std::ofstream reset("/proc/self/clear_refs");
  reset << 5 << std::flush;
  is_known_ = reset.good();
  before_ = status_kilobytes("VmHWM:");
}

std::uint64_t PeakMemory::grown() const {
  if (!is_known_) return 0;
  const std::uint64_t now = status_kilobytes("VmHWM:");
  return now > before_ ? (now - before_) * 1024 : 0;
}

Handles open_handles(const std::string& path) {
  Handles handles;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  handles.descriptors =
      static_cast<std::uint64_t>(std::distance(begin(descriptors), end(descriptors)));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(" " + path)) ++handles.mappings;
  return handles;
}

}  // namespace weightmap::test
