#include "runtime/checkpoint/arriving_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap {

ArrivingFile::ArrivingFile(std::shared_ptr<RangeSource> source, RemoteVersion version,
                           os::File copy) noexcept
    : source_(std::move(source)),
      version_(std::move(version)),
      copy_(std::move(copy)),
      forks_(os::fork_count()) {}

Result<std::shared_ptr<ArrivingFile>> ArrivingFile::make(std::shared_ptr<RangeSource> source,
                                                         Identified known, int copy) {
  const auto run = [&]() -> Result<std::shared_ptr<ArrivingFile>> {
    os::count_forks();
    TRY_ASSIGN(os::File file, os::File::from_descriptor(copy));
    std::shared_ptr<ArrivingFile> made(
        new ArrivingFile(source, std::move(known.version), std::move(file)));
    TRY(made->put(0, known.head));
    TRY(made->put(made->size() - known.tail.size(), known.tail));
    return made;
  };
  Result<std::shared_ptr<ArrivingFile>> made = run();
  if (!made) return about_source(*source, std::move(made.error()));
  return made;
}

Result<std::shared_ptr<ArrivingFile>> ArrivingFile::in_memory(std::shared_ptr<RangeSource> source,
                                                              Ends ends, bool is_sibling) {
  TRY_ASSIGN(Identified known, identify(*source, first_reads(source->name(), is_sibling), ends));
  Result<os::UniqueFd> memory = os::make_memfd(known.version.size, "weightmap:metadata");
  if (!memory) return about_source(*source, std::move(memory.error()));
  TRY_ASSIGN(std::shared_ptr<ArrivingFile> made,
             make(std::move(source), std::move(known), memory->get()));
  made->ends_ = ends;
  return made;
}

Result<os::File> ArrivingFile::open(const std::shared_ptr<ArrivingFile>& file) {
  const auto for_reading = [&]() -> Result<os::File> {
    TRY_ASSIGN(const os::UniqueFd readable, os::reopen_for_reading(file->copy_.descriptor()));
    return os::File::from_descriptor(readable.get());
  };
  Result<os::File> opened = for_reading();
  if (!opened) return about_source(*file->source_, std::move(opened.error()));
  opened->read_through(file);
  return opened;
}

Result<void> ArrivingFile::put(std::uint64_t offset, std::span<const std::byte> content) const {
  TRY(os::write_at(copy_.descriptor(), offset, content));
  arrived_.add({offset, content.size()});
  return {};
}

// Metadata is a few ranges, which are read from front to back: records after one another, or a
// header whose length is not known. So what follows the head of the file is read in growing steps.
ByteRange ArrivingFile::with_surroundings(ByteRange range) const noexcept {
  constexpr std::uint64_t around = 64 * 1024;
  constexpr std::uint64_t longest_step = std::uint64_t{32} << 20;
  const std::uint64_t head = arrived_.end_of_first();
  const std::uint64_t begin = range.offset / around * around;
  std::uint64_t end = bytes::round_up(range.offset + range.length + around, around);
  if (begin <= head) end = std::max(end, head + std::min(3 * head, longest_step));
  return {begin, std::min(end, size()) - begin};
}

// Reads what is missing of disjoint ranges into the copy.
Result<void> ArrivingFile::keep(std::span<const ByteRange> wanted) const {
  std::vector<std::vector<std::byte>> memory;
  std::vector<RangeRequest> parts;
  for (const ByteRange& range : wanted)
    for (const ByteRange& missing : arrived_.missing(range)) {
      memory.emplace_back(static_cast<std::size_t>(missing.length));
      parts.push_back({missing.offset, memory.back()});
    }
  TRY(read_parts(*source_, parts));
  for (const RangeRequest& part : parts) TRY(put(part.offset, part.into));
  return {};
}

// Fills `out` with what the copy has, and reads the rest.
Result<void> ArrivingFile::pass(std::uint64_t offset, std::span<std::byte> out) const {
  std::vector<RangeRequest> parts;
  std::uint64_t at = offset;
  const auto copy_until = [&](std::uint64_t end) -> Result<void> {
    return copy_.read(at, out.subspan(at - offset, end - at));
  };
  for (const ByteRange& range : arrived_.missing({offset, out.size()})) {
    TRY(copy_until(range.offset));
    at = range.offset + range.length;
    parts.push_back({range.offset, out.subspan(range.offset - offset, range.length)});
  }
  TRY(copy_until(offset + out.size()));
  return read_parts(*source_, std::move(parts));
}

// Unlocks where the owner brings the bytes in.
Result<void> ArrivingFile::read_missing(std::uint64_t offset, std::span<std::byte> out,
                                        std::unique_lock<std::mutex>& lock) const {
  if (std::holds_alternative<Passing>(state_)) return pass(offset, out);
  if (const auto* const handed = std::get_if<HandedOver>(&state_)) {
    const Arrive arrive = handed->arrive;
    lock.unlock();
    TRY(arrive({offset, out.size()}));
  } else {
    const ByteRange wanted = with_surroundings({offset, out.size()});
    TRY(keep({&wanted, 1}));
  }
  return copy_.read(offset, out);
}

// A connection belongs to the process that opened it, and in a child the mutex may be locked for
// good.
Result<void> ArrivingFile::check_own() const {
  if (os::fork_count() == forks_) return {};
  return about_source(*source_, {ErrorCode::unsupported,
                                 "a remote file is read by the process that opened it only",
                                 Error::no_offset,
                                 {}});
}

Result<void> ArrivingFile::will_read(std::span<const ByteRange> ranges) const {
  constexpr std::uint64_t unit = 4096;  // joins ranges that are closer than that
  TRY(check_own());
  bytes::RangeSet wanted;
  for (const ByteRange& range : ranges) {
    if (!bytes::contains(size(), range.offset, range.length)) continue;
    const std::uint64_t begin = range.offset / unit * unit;
    const std::uint64_t end = bytes::round_up(range.offset + range.length, unit);
    wanted.add({begin, std::min(end, size()) - begin});
  }
  const std::lock_guard lock(mutex_);
  if (!std::holds_alternative<Keeping>(state_)) return {};
  if (Result<void> done = keep(wanted.ranges()); !done)
    return about_source(*source_, std::move(done.error()));
  return {};
}

Result<void> ArrivingFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  TRY(check_own());
  if (!bytes::contains(size(), offset, out.size()))
    return bytes::leaves_source(*this, offset, out.size());
  std::unique_lock lock(mutex_);
  Result<void> done = arrived_.contains({offset, out.size()}) ? copy_.read(offset, out)
                                                              : read_missing(offset, out, lock);
  if (!done) return about_source(*source_, std::move(done.error()));
  return done;
}

std::vector<ByteRange> ArrivingFile::arrived() const {
  const std::lock_guard lock(mutex_);
  return arrived_.ranges();
}

void ArrivingFile::add_arrived(ByteRange range) {
  const std::lock_guard lock(mutex_);
  arrived_.add(range);
}

void ArrivingFile::stop_keeping() {
  const std::lock_guard lock(mutex_);
  state_ = Passing{};
}

void ArrivingFile::hand_over(Arrive arrive) {
  const std::lock_guard lock(mutex_);
  state_ = HandedOver{std::move(arrive)};
}

}  // namespace weightmap
