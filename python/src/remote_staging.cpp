#include "python/src/remote_staging.hpp"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "runtime/base/try.hpp"

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

Result<std::shared_ptr<RemoteStaging::Running>> RemoteStaging::start(
    std::unique_ptr<RangeSource> source, const RemoteStageOptions& options) {
  TRY_ASSIGN(Staging staging, start_staging(std::move(source), options));
  return std::shared_ptr<Running>(new Running{std::move(staging)}, Running::end);
}

RemoteStaging::RemoteStaging(std::shared_ptr<Running> running, const std::string& name,
                             std::shared_ptr<Watched> watched)
    : running_(std::move(running)), watched_(std::move(watched)) {
  const std::shared_ptr<const Checkpoint> checkpoint(running_, &running_->staging.checkpoint());
  metadata_ = std::make_shared<const Holder>(checkpoint, Origin{name, {}, true}, on_its_way);
  with_bytes_ = std::make_shared<const Holder>(checkpoint, Origin{name, {}, true});
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
