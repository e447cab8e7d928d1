#include "tools/snapshot/ability.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/namespaces.hpp"
#include "tools/snapshot/permissions.hpp"
#include "tools/snapshot/shared_memory.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {
namespace {

// Makes namespaces as the supervisor of a command does, on a folder that nobody else sees
// meanwhile.
Result<void> try_namespaces() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return failure(ErrorCode::io, "no pipe can be made");
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  TRY_ASSIGN(const pid_t made, run_in_namespaces([&] {
               Result<void> done = mount_own("/tmp");
               if (done) done = mount_shared_memory();
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
