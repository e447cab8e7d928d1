#include "tools/snapshot/ability.hpp"

#include <linux/capability.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/namespaces.hpp"
#include "tools/support/descriptor.hpp"

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

// Makes namespaces as the supervisor of a command does, on a folder that nobody else sees
// meanwhile.
Result<void> try_namespaces() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return failure(ErrorCode::io, "no pipe can be made");
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  TRY_ASSIGN(const pid_t made, run_in_namespaces([&] {
               Result<void> done = mount_own("/tmp");
               if (done) done = set_next_id(2);
               const std::string text = done ? "" : done.error().message;
               [[maybe_unused]] const ssize_t size =
                   ::write(writing.get(), text.data(), text.size());
             }));
  writing = Descriptor();
  std::array<char, 400> text{};
  const ssize_t got = ::read(reading.get(), text.data(), text.size());
  ::waitpid(made, nullptr, 0);
  if (got <= 0) return {};
  return failure(ErrorCode::io, std::string(text.data(), static_cast<std::size_t>(got)));
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

Result<std::string> ability() {
  if (std::string missing = missing_permission(); !missing.empty())
    return failure(ErrorCode::io, std::move(missing));
  const std::filesystem::path criu = find_criu();
  TRY_ASSIGN(std::string version, criu_version(criu));
  TRY(try_namespaces());
  TRY(check_criu(criu));
  return version;
}

}  // namespace weightmap::cli::snapshot
