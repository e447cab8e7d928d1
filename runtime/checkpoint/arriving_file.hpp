// A remote file whose bytes arrive on demand in a local one, its copy.
//
//   read(range) ──▶ in the copy? ── yes ─────────────────────▶ the copy
//                       │ no: by the state
//   Keeping      reads it, and bytes around it, from the source ──▶ into the copy ──▶ the copy
//   Passing      reads what is missing from the source ──▶ into the caller's memory alone
//   HandedOver   asks its new owner, who reads it into the copy ──▶ the copy
//
//   Keeping, while metadata is parsed ──stop_keeping()──▶ Passing, a remote checkpoint
//                                     ──hand_over()─────▶ HandedOver, a fetch into the copy
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/range_set.hpp"
#include "runtime/checkpoint/identified.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// All functions may be called from any thread of the process that made it; one at a time reads the
// source, and the others wait. Errors name the source.
class ArrivingFile final : public bytes::ByteSource {
 public:
  // Calls for bytes in place of the source, and returns when they are in the copy.
  using Arrive = std::function<Result<void>(ByteRange range)>;

  // `copy` is a descriptor for reading and writing of a file with as many bytes as the version; the
  // caller keeps it. Puts `known` into it. Fails with not_a_checkpoint for an empty file, with io
  // if the system refuses.
  static Result<std::shared_ptr<ArrivingFile>> make(std::shared_ptr<RangeSource> source,
                                                    Identified known, int copy);
  // The same with the first reads of a file of this name, and memory as the copy, which takes only
  // what arrives.
  static Result<std::shared_ptr<ArrivingFile>> in_memory(std::shared_ptr<RangeSource> source,
                                                         Ends ends = Ends::together,
                                                         bool is_sibling = false);

  const RemoteVersion& version() const noexcept { return version_; }
  const std::shared_ptr<RangeSource>& source() const noexcept { return source_; }
  Ends ends() const noexcept { return ends_; }  // as they were asked for in memory

  std::uint64_t size() const noexcept override { return version_.size; }
  // Fills `out` from the copy, after reading what is missing there and, since the metadata of a
  // checkpoint lies close together, some bytes around it.
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override;
  // Reads what is missing of all of them together, into the copy. Does nothing once that is not
  // kept, or handed over.
  Result<void> will_read(std::span<const ByteRange> ranges) const override;

  // What is in the copy. None of it is read again.
  std::vector<ByteRange> arrived() const;
  // Notes what another one has put into the copy. The range lies in the file.
  void add_arrived(ByteRange range);

  // From here on it is Passing: exactly the missing bytes are read, each time, and none goes to the
  // copy, in which they stay holes.
  void stop_keeping();
  // From here on it is HandedOver: `arrive` is called, by any thread and several at once, for all
  // bytes that are not in the set, and the source is the caller's.
  void hand_over(Arrive arrive);

  // Opens the copy for reading, as a file that reads through `file`.
  static Result<os::File> open(const std::shared_ptr<ArrivingFile>& file);

 private:
  struct Keeping {};
  struct Passing {};
  struct HandedOver {
    Arrive arrive;
  };

  ArrivingFile(std::shared_ptr<RangeSource> source, RemoteVersion version, os::File copy) noexcept;
  Result<void> check_own() const;
  Result<void> put(std::uint64_t offset, std::span<const std::byte> content) const;
  ByteRange with_surroundings(ByteRange range) const noexcept;
  Result<void> read_missing(std::uint64_t offset, std::span<std::byte> out,
                            std::unique_lock<std::mutex>& lock) const;
  Result<void> keep(std::span<const ByteRange> wanted) const;
  Result<void> pass(std::uint64_t offset, std::span<std::byte> out) const;

  const std::shared_ptr<RangeSource> source_;
  const RemoteVersion version_;
  const os::File copy_;
  const std::uint32_t forks_;
  Ends ends_ = Ends::together;
  mutable std::mutex mutex_;
  mutable bytes::RangeSet arrived_;  // this and all below are protected by the mutex
  std::variant<Keeping, Passing, HandedOver> state_;
};

}  // namespace weightmap
