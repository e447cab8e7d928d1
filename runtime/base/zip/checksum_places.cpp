#include "runtime/base/zip/checksum_places.hpp"

#include <array>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

constexpr std::uint64_t crc_in_descriptor = 4;
constexpr std::uint64_t crc_in_entry = 16;

// The directory's memory is one block with its names, so a name's address gives its entry.
std::uint64_t entry_offset(const Directory& directory, const Record& record) noexcept {
  return directory.offset() +
         static_cast<std::uint64_t>(record.name - directory.records().front().name);
}

tl::unexpected<Error> not_there(const Record& record, std::uint64_t at) {
  return failure(ErrorCode::corrupt,
                 "the checksum of record " + bytes::quote(record.full_name()) +
                     " does not stand where the directory's sizes put it",
                 at);
}

// Signature, CRC, then the stored size, in 32 bits or in 64.
Result<void> check_descriptor(const bytes::ByteSource& file, std::uint64_t at,
                              const Record& record) {
  std::array<std::byte, 12> read{};
  TRY(file.read(at, read));
  const bool is_it =
      bytes::load_le<std::uint32_t>(read.data()) == descriptor_signature &&
      bytes::load_le<std::uint32_t>(read.data() + 8) == (record.stored_size & 0xFFFFFFFF);
  return is_it ? Result<void>{} : not_there(record, at);
}

Result<void> check_entry(const bytes::ByteSource& file, std::uint64_t at, const Record& record) {
  std::vector<std::byte> read(central_entry_bytes + record.name_length);
  TRY(file.read(at, read));
  const std::string_view name(reinterpret_cast<const char*>(read.data()) + central_entry_bytes,
                              record.name_length);
  const bool is_it =
      bytes::load_le<std::uint32_t>(read.data()) == central_signature && name == record.full_name();
  return is_it ? Result<void>{} : not_there(record, at);
}

}  // namespace

Result<ChecksumPlaces> checksum_places(const bytes::ByteSource& file, const Directory& directory,
                                       const Record& record, std::uint64_t payload) {
  if (!record.has_descriptor)
    return failure(ErrorCode::unsupported,
                   "record " + bytes::quote(record.full_name()) +
                       " has no data descriptor, as in an archive that another tool wrote",
                   record.header_offset);
  const std::uint64_t descriptor = payload + record.stored_size;
  const std::uint64_t entry = entry_offset(directory, record);
  TRY(check_descriptor(file, descriptor, record));
  TRY(check_entry(file, entry, record));
  return ChecksumPlaces{descriptor + crc_in_descriptor, entry + crc_in_entry};
}

}  // namespace weightmap::zip
