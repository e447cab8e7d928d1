// A remote checkpoint on its way into shared memory, as Python has it.
#pragma once

#include <memory>
#include <string>

#include "python/src/holder.hpp"
#include "python/src/long_call.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::python {

// Belongs to the process that started it. Needs the GIL.
class RemoteStaging {
 public:
  struct Running;  // may end in any thread, with the GIL or without
  // Needs no GIL.
  static Result<std::shared_ptr<Running>> start(std::unique_ptr<RangeSource> source,
                                                const RemoteStageOptions& options);
  // `watched` is what the options' progress tells.
  RemoteStaging(std::shared_ptr<Running> running, const std::string& name,
                std::shared_ptr<Watched> watched);
  RemoteStaging(RemoteStaging&&) noexcept = default;
  RemoteStaging& operator=(RemoteStaging&&) = delete;
  ~RemoteStaging();  // stop()

  // Raises in a forked child.
  Staging& staging() const;
  // Staging::stop(); nothing in a forked child. No other thread may be in finish() then.
  void stop() const noexcept;
  const std::shared_ptr<Watched>& watched() const noexcept { return watched_; }
  const Owner& metadata() const noexcept { return metadata_; }
  // For tensors whose bytes have arrived.
  const Owner& with_bytes() const noexcept { return with_bytes_; }

 private:
  std::shared_ptr<Running> running_;
  std::shared_ptr<Watched> watched_;
  Owner metadata_, with_bytes_;  // keep running_
};

}  // namespace weightmap::python
