// A remote file that is read by ranges: the interface between the core, which has no network, and
// the one who has: libweightmap_remote (remote.hpp), or your own class over any client of a store.
//
// A source serves one version of its file. It is found out by identify(), and all later reads are
// of this version (HTTP: If-Match, or S3's versionId), or fail.
//
// One thread at a time may call a source; it may be another one each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// One version of a remote file, as its server tells it.
struct RemoteVersion {
  std::uint64_t size = 0;  // in bytes
  std::string tag = {};    // HTTP's ETag as it was sent, with its quotes; empty: there is none
  std::string id = {};     // S3's versionId; empty: there is none

  friend bool operator==(const RemoteVersion&, const RemoteVersion&) = default;
};

struct RangeRequest {
  std::uint64_t offset = 0;
  std::span<std::byte> into = {};  // its size is the length of the range
};

// What RangeSource::read() asks for ranges, and tells of their arrival. All calls come from the
// thread that called read().
class WEIGHTMAP_API RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Returns the range to begin next, whose memory stays valid until it has arrived or read() has
  // returned; nullopt once no range is left. Called as late as possible, so that the order may
  // still change.
  virtual std::optional<RangeRequest> next() = 0;
  // All bytes of a range have arrived, and are from the version of identify(). Each range arrives
  // once, in any order. An error ends read(), which returns it.
  virtual Result<void> arrived(const RangeRequest& request) = 0;
  // The first `bytes` of a range that is on its way have arrived likewise, and are not written to
  // any more. A source that tells it, now and then, lets them be kept though it may fail later.
  virtual void began(const RangeRequest& /*request*/, std::size_t /*bytes*/) {}
  // Called at least ten times a second. false: read() stops and fails with cancelled. `received` is
  // the number of body bytes that have come in this read(), including those of unfinished ranges.
  virtual bool goes_on(std::uint64_t received) = 0;
};

// Counted since the source was made.
struct RangeCounts {
  std::uint64_t requests = 0;     // of all kinds, including those that failed
  std::uint64_t retries = 0;      // requests for the rest of a range whose first request failed
  std::uint64_t hedges = 0;       // second requests for a range that was slow
  std::uint64_t bytes = 0;        // of bodies
  std::uint64_t bytes_twice = 0;  // of these, bytes that had been received before
};

class WEIGHTMAP_API RangeSource {
 public:
  virtual ~RangeSource() = default;
  // For messages: "https://host/folder/model.pt", without query, user and password.
  virtual const std::string& name() const noexcept = 0;
  // What tells this file from all others, whatever their versions are called: the URL with what
  // name() leaves out, but for credentials that expire. Only digests of it are kept.
  virtual std::string identity() const { return name(); }
  // Finds out the version, and fills the first bytes of the file into `head` and its last into
  // `tail`, as many as there are, in one round trip where the protocol can: a file of N bytes fills
  // the first min(N, head.size()) bytes of `head`, and the last min(N, tail.size()) bytes of
  // `tail`, whose end is the file's. Either may be empty. Called once, before read().
  virtual Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) = 0;
  // Reads ranges until next() has none left and all have arrived. Fails with io if the store cannot
  // be read, cannot be read any more, or serves another version by now; the message then begins
  // with "changed". Several ranges are on their way at a time.
  virtual Result<void> read(RangeReader& reader) = 0;
  // Opens another file, by its name relative to the folder of this one: "model-00002-of-3.pt",
  // "sub/data". Fails with unsupported if the source knows no folder.
  virtual Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const = 0;
  virtual RangeCounts counts() const noexcept = 0;
};

}  // namespace weightmap
