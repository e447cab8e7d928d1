#include "tools/snapshot/permissions.hpp"

#include <linux/capability.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace weightmap::cli::snapshot {
namespace {

struct Capability {
  unsigned number;
  const char* name;
};
constexpr std::array needed = {Capability{CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
                               Capability{CAP_NET_ADMIN, "CAP_NET_ADMIN"},
                               Capability{CAP_SYS_TIME, "CAP_SYS_TIME"}};

std::uint64_t field(std::string_view status, std::string_view name, int base) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return 0;
  return std::strtoull(std::string(status.substr(at + name.size(), 32)).c_str(), nullptr, base);
}

}  // namespace

std::string missing_permission(std::string_view status) {
  const std::uint64_t effective = field(status, "\nCapEff:", 16);
  for (const Capability& each : needed)
    if ((effective >> each.number & 1) == 0)
      return std::string("the capability ") + each.name +
             " is missing, which root has, and a container with --cap-add";
  if (field(status, "\nSeccomp:", 10) == 2)
    return "a seccomp filter keeps criu from dumping; containers are without one with "
           "--security-opt seccomp=unconfined";
  return {};
}

std::string missing_permission() {
  std::ifstream file("/proc/self/status");
  return missing_permission(std::string{std::istreambuf_iterator<char>(file), {}});
}

}  // namespace weightmap::cli::snapshot
