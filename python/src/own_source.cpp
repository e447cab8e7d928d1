#include "python/src/own_source.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "python/src/asking.hpp"
#include "python/src/read_threads.hpp"
#include "python/src/text.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds between_looks{50};  // at whether a read is to go on

// The first and the last bytes of a file.
class BothEnds final : public RangeReader {
 public:
  BothEnds(std::uint64_t size, std::span<std::byte> head, std::span<std::byte> tail)
      : ranges_{RangeRequest{0, head.first(std::min<std::uint64_t>(size, head.size()))},
                RangeRequest{size - std::min<std::uint64_t>(size, tail.size()),
                             tail.last(std::min<std::uint64_t>(size, tail.size()))}} {}

  std::optional<RangeRequest> next() override {
    while (next_ < ranges_.size() && ranges_[next_].into.empty()) ++next_;
    if (next_ == ranges_.size()) return std::nullopt;
    return ranges_[next_++];
  }
  Result<void> arrived(const RangeRequest&) override { return {}; }
  bool goes_on(std::uint64_t) override { return true; }

 private:
  std::array<RangeRequest, 2> ranges_;
  std::size_t next_ = 0;
};

}  // namespace

Result<RemoteVersion> OwnSource::identify(std::span<std::byte> head, std::span<std::byte> tail) {
  RemoteVersion version;
  const Result<void> found = asking([&] {
    version.size = nb::cast<std::uint64_t>(bridge_->attr("size"));
    version.tag = to_utf8(bridge_->attr("tag"));
  });
  if (!found) return tl::unexpected<Error>(about(found.error()));
  BothEnds ends(version.size, head, tail);
  TRY(read(ends));
  return version;
}

Result<void> OwnSource::read(RangeReader& reader) { return read_ranges(reader); }

// What arrives is of the version of identify(), and may be used at once.
Result<void> OwnSource::check() {
  const Result<void> same = asking([&] { bridge_->attr("check")(); });
  if (!same) return tl::unexpected<Error>(about(same.error()));
  return {};
}

Result<void> OwnSource::read_ranges(RangeReader& reader) {
  ReadThreads threads(bridge_, connections_);
  std::uint64_t received = 0;
  for (;;) {
    while (!threads.are_all_busy()) {
      const std::optional<RangeRequest> request = reader.next();
      if (!request) break;
      ++requests_;
      TRY(threads.begin(*request));
    }
    if (threads.are_idle()) return {};
    if (const auto done = threads.next_done(between_looks)) {
      if (!done->result) return tl::unexpected<Error>(about(done->result.error()));
      received += done->request.into.size();
      bytes_ += done->request.into.size();
      TRY(check());
      TRY(reader.arrived(done->request));
    }
    if (!reader.goes_on(received))
      return tl::unexpected<Error>(
          about({ErrorCode::cancelled, "the read was cancelled", Error::no_offset, {}}));
  }
}

Result<std::unique_ptr<RangeSource>> OwnSource::sibling(const std::string& relative) const {
  std::unique_ptr<RangeSource> found;
  const Result<void> asked = asking([&] {
    const nb::object bridge = bridge_->attr("sibling")(to_str(relative));
    if (!bridge.is_none()) found = own_source(bridge);
  });
  if (!asked) return tl::unexpected<Error>(about(asked.error()));
  if (found) return found;
  return tl::unexpected<Error>(
      about({ErrorCode::unsupported,
             "is a source without sibling(), by which '" + relative + "' would be found",
             Error::no_offset,
             {}}));
}

RangeCounts OwnSource::counts() const noexcept {
  RangeCounts counts;
  counts.requests = requests_;
  counts.bytes = bytes_;
  return counts;
}

Error OwnSource::about(Error error) const {
  error.file = name_;
  return error;
}

std::unique_ptr<RangeSource> own_source(nb::handle bridge) {
  return std::make_unique<OwnSource>(hold_object(nb::borrow(bridge)), to_utf8(bridge.attr("name")),
                                     nb::cast<unsigned>(bridge.attr("connections")));
}

}  // namespace weightmap::python
