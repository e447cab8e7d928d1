#include "runtime/base/zip/end_record.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

tl::unexpected<Error> corrupt(std::string message, std::uint64_t offset) {
  return failure(ErrorCode::corrupt, std::move(message), offset);
}

std::string text(std::uint64_t value) { return std::to_string(value); }

struct EndSearch {
  std::optional<std::size_t> found;  // an end record whose comment ends with the file
  // A signature before that one whose comment ends elsewhere, which weights may contain by chance;
  // or any signature behind it, which readers that take the last one would follow.
  std::optional<std::size_t> other;
  bool ambiguous = false;
};

// The last byte of the signature is the rarest of the four in directories and weights.
EndSearch search_end(std::span<const std::byte> tail) {
  constexpr std::size_t last = 3;
  EndSearch search;
  const std::byte* const begin = tail.data();
  const std::byte* const end = begin + tail.size();
  for (const std::byte* at = begin + last; at < end; ++at) {
    at = static_cast<const std::byte*>(
        std::memchr(at, static_cast<int>(end_signature >> 24), static_cast<std::size_t>(end - at)));
    if (at == nullptr) break;
    const auto position = static_cast<std::size_t>(at - last - begin);
    if (bytes::load_le<std::uint32_t>(at - last) != end_signature) continue;
    if (tail.size() - position < end_bytes) continue;
    const auto comment = bytes::load_le<std::uint16_t>(begin + position + 20);
    const bool ends_with_file = comment == tail.size() - position - end_bytes;
    search.ambiguous |= search.found.has_value();
    (ends_with_file && !search.found ? search.found : search.other) = position;
  }
  return search;
}

// Returns the absolute offset of the only end record.
Result<std::uint64_t> find_end_record(bytes::ReadCache& cache) {
  const std::uint64_t size = cache.source_size();
  std::span<const std::byte> tail;
  EndSearch search;
  for (std::uint64_t wanted : {cache.tail_bytes(), end_bytes + max_comment_bytes}) {
    const std::uint64_t length = std::min(size, wanted);
    TRY_ASSIGN(tail, cache.extend_back(size - length, length));
    if (tail.size() < end_bytes) break;
    search = search_end(tail);
    if (search.found || length == size) break;
  }
  const std::uint64_t start = size - tail.size();
  if (search.ambiguous)
    return corrupt(
        "the archive has two end records, the other at byte " + text(start + *search.other),
        start + *search.found);
  if (search.found) return start + *search.found;
  if (search.other)
    return corrupt("behind the end record of the archive the file goes on for " +
                       bytes::counted(tail.size() - *search.other - end_bytes, "byte") +
                       ", and the record announces another number",
                   start + *search.other);
  return failure(ErrorCode::not_a_checkpoint,
                 "is no zip archive: no end record in the last " + text(tail.size()) + " bytes");
}

// The fields of either kind of end record, in the wider one's types.
struct EndFields {
  std::uint64_t disk;
  std::uint64_t directory_disk;
  std::uint64_t count_here;
  std::uint64_t count;
  std::uint64_t directory_size;
  std::uint64_t directory_offset;
};

Result<EndFields> read_end(bytes::ReadCache& cache, std::uint64_t at) {
  std::array<std::byte, end_bytes> record;
  TRY(cache.copy(at, record));
  bytes::ByteCursor cursor(record);
  cursor.skip(4);
  EndFields end{};
  end.disk = cursor.u16();
  end.directory_disk = cursor.u16();
  end.count_here = cursor.u16();
  end.count = cursor.u16();
  end.directory_size = cursor.u32();
  end.directory_offset = cursor.u32();
  return end;
}

Result<void> check_one_disk(const EndFields& end, std::uint64_t at) {
  if (end.disk != 0 || end.directory_disk != 0)
    return failure(ErrorCode::unsupported,
                   "the archive is one of several disks (number " + text(end.disk) + ")", at);
  if (end.count_here != end.count)
    return corrupt("the end record counts " + bytes::counted(end.count_here, "record") +
                       " on this disk and " + text(end.count) + " in all",
                   at);
  return {};
}

// Returns nullopt if there is no locator before the end record.
Result<std::optional<std::uint64_t>> read_locator(bytes::ReadCache& cache, std::uint64_t end_at) {
  std::array<std::byte, locator_bytes> locator;
  if (end_at < locator_bytes) return std::optional<std::uint64_t>{};
  const std::uint64_t at = end_at - locator_bytes;
  TRY(cache.copy(at, locator));
  bytes::ByteCursor cursor(locator);
  if (cursor.u32() != locator_signature) return std::optional<std::uint64_t>{};
  const std::uint32_t disk = cursor.u32();
  const std::uint64_t offset = cursor.u64();
  if (disk != 0 || cursor.u32() > 1)
    return failure(ErrorCode::unsupported, "the zip64 locator speaks of several disks", at);
  return offset;
}

Result<EndFields> read_end64(bytes::ReadCache& cache, std::uint64_t at) {
  std::array<std::byte, end64_bytes> record;
  TRY(cache.copy(at, record));
  bytes::ByteCursor cursor(record);
  if (cursor.u32() != end64_signature)
    return corrupt("a zip64 locator, but no zip64 end record directly before it", at);
  constexpr std::uint64_t own_size = end64_bytes - 12;  // the field counts bytes behind itself
  if (const std::uint64_t size = cursor.u64(); size != own_size)
    return corrupt(
        "the zip64 end record says it is " + text(size) + " bytes long, expected " + text(own_size),
        at);
  cursor.skip(4);  // versions
  EndFields end{};
  end.disk = cursor.u32();
  end.directory_disk = cursor.u32();
  end.count_here = cursor.u64();
  end.count = cursor.u64();
  end.directory_size = cursor.u64();
  end.directory_offset = cursor.u64();
  return end;
}

// A field of the classic record repeats the zip64 record's value or has the sentinel.
Result<void> check_agree(const EndFields& end, const EndFields& end64, std::uint64_t at) {
  const struct {
    const char* field;
    std::uint64_t classic, wide, refers;
  } fields[] = {{"disk number", end.disk, end64.disk, in_zip64_16},
                {"directory disk", end.directory_disk, end64.directory_disk, in_zip64_16},
                {"record count on this disk", end.count_here, end64.count_here, in_zip64_16},
                {"record count", end.count, end64.count, in_zip64_16},
                {"directory size", end.directory_size, end64.directory_size, in_zip64_32},
                {"directory offset", end.directory_offset, end64.directory_offset, in_zip64_32}};
  for (const auto& f : fields)
    if (f.classic != f.wide && f.classic != f.refers)
      return corrupt(std::string("the end records disagree about the ") + f.field + ": " +
                         text(f.classic) + ", and " + text(f.wide) + " in the zip64 record",
                     at);
  return {};
}

Result<void> check_complete(const EndFields& end, std::uint64_t at) {
  if (end.count != in_zip64_16 && end.directory_size != in_zip64_32 &&
      end.directory_offset != in_zip64_32)
    return {};
  return corrupt("the end record refers to a zip64 end record, but there is none", at);
}

// The end of the directory is known, so its size gives its place, and its stated offset gives the
// number of bytes before the archive.
Result<EndOfArchive> place_directory(const EndFields& end, std::uint64_t directory_end,
                                     std::uint64_t at) {
  if (!bytes::contains(directory_end, end.directory_offset, end.directory_size))
    return corrupt("the directory (" + bytes::counted(end.directory_size, "byte") + " from byte " +
                       text(end.directory_offset) + ") does not lie before its end record",
                   at);
  if (end.count == 0) return corrupt("the archive holds no records", at);
  if (end.count > end.directory_size / central_entry_bytes)
    return corrupt("the end record counts " + bytes::counted(end.count, "record") +
                       ", but a directory of " + bytes::counted(end.directory_size, "byte") +
                       " holds at most " + text(end.directory_size / central_entry_bytes),
                   at);
  const std::uint64_t offset = directory_end - end.directory_size;
  return EndOfArchive{offset, end.directory_size, end.count, offset - end.directory_offset};
}

Result<EndOfArchive> place_by_end(const EndFields& end, std::uint64_t at) {
  TRY(check_one_disk(end, at));
  TRY(check_complete(end, at));
  return place_directory(end, at, at);
}

Result<EndOfArchive> place_by_end64(bytes::ReadCache& cache, const EndFields& end,
                                    std::uint64_t end_at, std::uint64_t located) {
  if (end_at < locator_bytes + end64_bytes)
    return corrupt("a zip64 locator, but no room for a zip64 end record before it", end_at);
  const std::uint64_t at = end_at - locator_bytes - end64_bytes;
  TRY_ASSIGN(const EndFields end64, read_end64(cache, at));
  TRY(check_one_disk(end64, at));
  TRY(check_agree(end, end64, end_at));
  TRY_ASSIGN(const EndOfArchive placed, place_directory(end64, at, at));
  if (located > at || at - located != placed.archive_start)
    return corrupt("the zip64 locator points to byte " + text(located) +
                       ", expected the zip64 end record at byte " + text(at - placed.archive_start),
                   end_at - locator_bytes);
  return placed;
}

}  // namespace

Result<EndOfArchive> find_end_of_archive(bytes::ReadCache& cache, bool expected) {
  TRY_ASSIGN(const std::uint64_t at, find_end_record(cache));
  TRY_ASSIGN(const EndFields end, read_end(cache, at));
  TRY_ASSIGN(const std::optional<std::uint64_t> locator, read_locator(cache, at));
  TRY_ASSIGN(const EndOfArchive placed,
             locator ? place_by_end64(cache, end, at, *locator) : place_by_end(end, at));
  if (!expected) TRY(check_prefix(cache, placed.archive_start));
  return placed;
}

// A self-extracting program or other data may precede an archive. A second archive there is
// refused, since readers differ in which of the two they show.
Result<void> check_prefix(bytes::ReadCache& cache, std::uint64_t first_header) {
  if (first_header == 0) return {};
  std::array<std::byte, 4> head;
  TRY(cache.copy(0, head));
  if (bytes::load_le<std::uint32_t>(head.data()) != local_header_signature) return {};
  return corrupt("the archive seems to begin at byte " + text(first_header) +
                     ", but the file begins like an archive too: two archives in one file, or "
                     "bytes inserted or lost",
                 first_header);
}

}  // namespace weightmap::zip
