// A file by URL as Python has it: opened anew for each use, since a RangeSource serves one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::python {

// What _curl.opener() makes a capsule of, under this name: only who opens a URL loads libcurl.
inline constexpr const char* opener_name = "weightmap.opener";

// All functions may be called from any thread, and one read() is on its way at a time. They may
// call Python: the GIL must not be held.
class UrlSource {
 public:
  using GoesOn = std::function<bool()>;
  // `goes_on` as RemoteOptions has it. `is_one_call`: a deadline is for all that is done with it.
  using Open =
      std::function<Result<std::unique_ptr<RangeSource>>(GoesOn goes_on, bool is_one_call)>;

  static Result<std::unique_ptr<UrlSource>> make(Open open);

  const std::string& name() const noexcept { return source_->name(); }
  // Asks the store once.
  Result<RemoteVersion> version(const Progress& progress);
  Result<void> read(std::uint64_t offset, std::span<std::byte> into, const Progress& progress);
  RangeCounts counts() const noexcept { return source_->counts(); }

  // For a use of its own. It fails unless the file still is what version() told, if it did.
  Result<std::unique_ptr<RangeSource>> open(GoesOn goes_on) const;
  Result<std::unique_ptr<UrlSource>> sibling(const std::string& relative) const;

 private:
  using Asker = std::shared_ptr<const Progress*>;  // who waits for source_, or nobody
  UrlSource(Open open, Asker asker, std::unique_ptr<RangeSource> source) noexcept
      : open_(std::move(open)), asker_(std::move(asker)), source_(std::move(source)) {}
  Result<RemoteVersion> version_locked();

  Open open_;
  const Asker asker_;
  std::unique_ptr<RangeSource> source_;  // for version() and read()
  std::mutex use_;                       // of source_
  mutable std::mutex mutex_;
  std::optional<RemoteVersion> version_;  // under the mutex
};

}  // namespace weightmap::python
