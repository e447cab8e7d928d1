#include "tools/snapshot/machine.hpp"

#include <sys/utsname.h>

#include <fstream>
#include <string_view>

#include "tools/snapshot/checksum.hpp"

namespace weightmap::cli::snapshot {
namespace {

std::string value_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  return colon == std::string::npos ? "" : line.substr(std::min(line.size(), colon + 2));
}

bool begins_with(const std::string& line, std::string_view x86, std::string_view arm) {
  return line.starts_with(x86) || line.starts_with(arm);
}

// Of the first processor: "flags" on x86, "Features" on Arm.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, features;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (begins_with(line, "model name", "CPU part")) name = value_of(line);
    if (begins_with(line, "flags", "Features")) features = value_of(line);
  }
  return name + ", features " + hexadecimal(checksum_of(features));
}

}  // namespace

Machine this_machine() {
  utsname names{};
  ::uname(&names);
  return {std::string(names.release) + " " + names.version, processor()};
}

}  // namespace weightmap::cli::snapshot
