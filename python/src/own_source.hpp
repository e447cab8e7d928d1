// A RangeSource over an object of Python: what weightmap/_remote/bridge.py makes of any that has
// name, size, tag and read_into().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "python/src/held_object.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::python {

// Its functions are called by threads without the GIL. Up to `connections` threads, which end with
// each read(), call the object; none does once a function has returned.
class OwnSource : public RangeSource {
 public:
  OwnSource(HeldObject bridge, std::string name, unsigned connections)
      : bridge_(std::move(bridge)), name_(std::move(name)), connections_(connections) {}

  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override;
  Result<void> read(RangeReader& reader) override;
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override;
  RangeCounts counts() const noexcept override;

 private:
  Result<void> read_ranges(RangeReader& reader);
  Result<void> check();
  Error about(Error error) const;  // names this source

  HeldObject bridge_;
  std::string name_;
  unsigned connections_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

// Precondition: `bridge` is one of bridge.py. Needs the GIL.
std::unique_ptr<RangeSource> own_source(nanobind::handle bridge);

}  // namespace weightmap::python
