// A remote file whose bytes arrive on demand in a local one, its copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes/byte_source.hpp"
#include "runtime/bytes/range_set.hpp"
#include "runtime/os/file/file.hpp"
#include "weightmap/range_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// How much of a file is read before it is known how much is needed.
struct FirstReads {
  std::size_t head = 0;
  std::size_t tail = 0;
};

// Those of a file of this name. `is_sibling`: many files are opened at once, so less is read of
// each.
FirstReads first_reads(const std::string& name, bool is_sibling = false);

// What identify() tells of a file.
struct Identified {
  RemoteVersion version;
  std::vector<std::byte> head;  // of the file, all of it if it is short
  std::vector<std::byte> tail;
};

// Whether both ends of a file are asked for at once, which is fastest; or the tail once the head
// has come, so that no byte of a short file comes twice.
enum class Ends : bool { together, in_turn };

// Finds out the version of a file, once for each source. Errors name the source.
Result<Identified> identify(RangeSource& source, FirstReads first, Ends ends = Ends::together);

// Fails if the store has another version of this file by now. `name`: of the file, in its folder.
Result<void> check_version(RangeSource& source, const RemoteVersion& version,
                           const std::string& name);

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

  // From here on exactly the missing bytes are read, each time, and none goes to the copy.
  void stop_keeping();
  // From here on `arrive` is called, by any thread and several at once, for all bytes that are not
  // in the set, and the source is the caller's.
  void hand_over(Arrive arrive);

  // Opens the copy for reading, as a file that reads through `file`.
  static Result<os::File> open(const std::shared_ptr<ArrivingFile>& file);

 private:
  ArrivingFile(std::shared_ptr<RangeSource> source, RemoteVersion version, os::File copy) noexcept;
  Result<void> check_own() const;
  Result<void> put(std::uint64_t offset, std::span<const std::byte> content) const;
  ByteRange with_surroundings(ByteRange range) const noexcept;
  Result<void> read_locked(std::uint64_t offset, std::span<std::byte> out) const;
  Result<void> keep(std::span<const ByteRange> wanted) const;
  Result<void> pass(std::uint64_t offset, std::span<std::byte> out) const;

  const std::shared_ptr<RangeSource> source_;
  const RemoteVersion version_;
  const os::File copy_;
  const std::uint32_t forks_;
  Ends ends_ = Ends::together;
  mutable std::mutex mutex_;
  mutable bytes::RangeSet arrived_;  // this and all below are protected by the mutex
  bool keeps_ = true;
  Arrive arrive_;
};

}  // namespace weightmap
