#include "runtime/base/zip/emit.hpp"

#include <algorithm>

#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

constexpr std::uint64_t deflated_version = 20;
constexpr std::uint64_t end64_made_by = 0x031E;
constexpr std::uint64_t end64_version = 45;

std::uint64_t flags_of(const EmittedRecord& record) noexcept {
  return record.size > 0 ? flag_descriptor | flag_utf8 : flag_utf8;
}

std::uint64_t version_of(const EmittedRecord& record) noexcept {
  return record.method == Method::deflated ? deflated_version : 0;
}

std::uint64_t clamp32(std::uint64_t value) noexcept {
  return std::min<std::uint64_t>(value, in_zip64_32);
}

// The local header's stored size is not known yet; like miniz, this writes 0.
void emit_zip64_field(bytes::ByteSink& sink, const EmittedRecord& record,
                      std::uint64_t stored_size) {
  const std::uint64_t length = Layout::zip64_field_bytes(record.size, record.header_offset);
  if (length == 0) return;
  sink.u16(zip64_extra_id);
  sink.u16(length - 4);
  if (record.size >= Layout::zip64_threshold) {
    sink.u64(record.size);
    sink.u64(stored_size);
  }
  if (record.header_offset >= Layout::zip64_threshold) sink.u64(record.header_offset);
}

}  // namespace

void emit_local_header(bytes::ByteSink& sink, const Layout& layout, const EmittedRecord& record) {
  const std::uint64_t zip64 = Layout::zip64_field_bytes(record.size, record.header_offset);
  const std::uint64_t payload =
      layout.payload_offset(record.header_offset, record.name.size(), record.size).value();
  const std::uint64_t padding = payload - record.header_offset - local_header_bytes -
                                record.name.size() - zip64 - Layout::padding_field_bytes;
  sink.u32(local_header_signature);
  sink.u16(version_of(record));
  sink.u16(flags_of(record));
  sink.u16(static_cast<std::uint64_t>(record.method));
  sink.fill(4 + 4 + 4 + 4, '\0');  // time and date, CRC, both sizes: they are in the descriptor
  sink.u16(record.name.size());
  sink.u16(zip64 + Layout::padding_field_bytes + padding);
  sink.text(record.name);
  emit_zip64_field(sink, record, 0);
  sink.text("FB");
  sink.u16(padding);
  sink.fill(padding, 'Z');
}

void emit_descriptor(bytes::ByteSink& sink, const EmittedRecord& record) {
  if (record.size == 0) return;
  sink.u32(descriptor_signature);
  sink.u32(record.crc32);
  if (Layout::needs_zip64(record.size, record.header_offset)) {
    sink.u64(record.stored_size);
    sink.u64(record.size);
  } else {
    sink.u32(record.stored_size);
    sink.u32(record.size);
  }
}

void emit_central_entry(bytes::ByteSink& sink, const EmittedRecord& record) {
  sink.u32(central_signature);
  sink.u16(0);  // version made by
  sink.u16(version_of(record));
  sink.u16(flags_of(record));
  sink.u16(static_cast<std::uint64_t>(record.method));
  sink.u32(0);  // time and date
  sink.u32(record.crc32);
  sink.u32(clamp32(record.stored_size));
  sink.u32(clamp32(record.size));
  sink.u16(record.name.size());
  sink.u16(Layout::zip64_field_bytes(record.size, record.header_offset));
  sink.fill(2 + 2 + 2 + 4, '\0');  // comment length, disk, both attributes
  sink.u32(clamp32(record.header_offset));
  sink.text(record.name);
  emit_zip64_field(sink, record, record.stored_size);
}

void emit_end(bytes::ByteSink& sink, std::uint64_t directory_offset, std::uint64_t directory_size,
              std::uint64_t record_count) {
  sink.u32(end64_signature);
  sink.u64(end64_bytes - 12);
  sink.u16(end64_made_by);
  sink.u16(end64_version);
  sink.u32(0);  // disks
  sink.u32(0);
  for (std::uint64_t value : {record_count, record_count, directory_size, directory_offset})
    sink.u64(value);
  sink.u32(locator_signature);
  sink.u32(0);
  sink.u64(directory_offset + directory_size);
  sink.u32(1);  // disks in all
  sink.u32(end_signature);
  sink.u32(0);
  const std::uint64_t count16 = std::min<std::uint64_t>(record_count, in_zip64_16);
  sink.u16(count16);
  sink.u16(count16);
  sink.u32(clamp32(directory_size));
  sink.u32(clamp32(directory_offset));
  sink.u16(0);  // comment
}

}  // namespace weightmap::zip
