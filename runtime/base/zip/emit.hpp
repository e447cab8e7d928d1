// Writes the parts of an archive, byte for byte as torch's writer does.
//
// The caller writes, for each record in turn: local header, payload, descriptor; then one central
// entry per record, then the end records. Times are 0, so equal content gives equal bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/base/zip/record.hpp"

namespace weightmap::zip {

// The facts about one record that are written. Offsets count from the start of the archive.
struct EmittedRecord {
  std::string_view name;  // with the top folder; at most 65535 bytes
  std::uint64_t header_offset;
  std::uint64_t size;
  std::uint64_t stored_size;
  std::uint32_t crc32;
  Method method = Method::stored;
};

// Writes header, name, zip64 field and padding: all bytes up to the payload. Precondition: the
// layout has a place for the payload, and the padding fits 16 bits (alignment at most 32 KiB).
void emit_local_header(bytes::ByteSink& sink, const Layout& layout, const EmittedRecord& record);
// Writes the data descriptor behind the payload; nothing for an empty record.
void emit_descriptor(bytes::ByteSink& sink, const EmittedRecord& record);
void emit_central_entry(bytes::ByteSink& sink, const EmittedRecord& record);
// Writes zip64 end record, locator and end record: 98 bytes.
void emit_end(bytes::ByteSink& sink, std::uint64_t directory_offset, std::uint64_t directory_size,
              std::uint64_t record_count);

}  // namespace weightmap::zip
