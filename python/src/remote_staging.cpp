#include "python/src/remote_staging.hpp"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

constexpr const char* on_its_way =
    "has only its metadata here: the bytes are on their way, and wait(name) of its Staging returns "
    "a tensor once they have come";

}  // namespace

struct RemoteStaging::Running {
  Staging staging;
  const pid_t process = ::getpid();

  // Its thread, which may wait for the GIL, is not there in a forked child.
  bool is_here() const noexcept { return Py_IsInitialized() && process == ::getpid(); }

  static void end(Running* running) {
    if (!running->is_here()) return;
    const nb::gil_scoped_acquire gil;  // which the caller has, or has not
    without_gil([running] { delete running; });
  }
};

RemoteStaging::RemoteStaging(Staging staging, std::string name, std::shared_ptr<Watched> watched)
    : running_(new Running{std::move(staging)}, Running::end), watched_(std::move(watched)) {
  const std::shared_ptr<const Checkpoint> checkpoint(running_, &running_->staging.checkpoint());
  metadata_ = std::make_shared<const Holder>(checkpoint, Origin{name, {}}, on_its_way);
  with_bytes_ = std::make_shared<const Holder>(checkpoint, Origin{std::move(name), {}});
}

RemoteStaging::~RemoteStaging() {
  if (running_) stop();
}

void RemoteStaging::stop() const noexcept {
  if (!running_->is_here()) return;
  without_gil([this] { running_->staging.stop(); });
}

Staging& RemoteStaging::staging() const {
  if (!running_->is_here())
    raise({ErrorCode::invalid_argument, "is staged by the process that began it, not by a fork",
           Error::no_offset, metadata_->origin().file});
  return running_->staging;
}

}  // namespace weightmap::python
