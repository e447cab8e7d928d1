#include "tools/snapshot/gate.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/base/try.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr const char* waiting_program =
    "#!/bin/sh\n"
    "[ \"$CRTOOLS_SCRIPT_ACTION\" = post-restore ] || exit 0\n"
    "read -r line < \"${0%/*}/gate\"\n";

}  // namespace

Result<Gate> Gate::create(const fs::path& folder) {
  TRY_ASSIGN(fs::path script, write_action_script(folder / "wait-for-gate", waiting_program));
  const fs::path path = folder / "gate";
  ::unlink(path.c_str());
  ::mkfifo(path.c_str(), 0600);
  // Open for both, so that neither side waits for the other to open it, and none sees its end.
  Descriptor fifo(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fifo.get() < 0)
    return failure(ErrorCode::io, printable(path.native()) + ": " + std::strerror(errno));
  return Gate(std::move(script), std::move(fifo));
}

void Gate::open() const { [[maybe_unused]] const ssize_t written = ::write(fifo_.get(), "\n", 1); }

}  // namespace weightmap::cli::snapshot
