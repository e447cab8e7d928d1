#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/base/zip/layout.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"

namespace weightmap::zip {
namespace {

using namespace test;

constexpr std::uint64_t limit32 = 0xFFFFFFFF;
constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

TEST_CASE("the zip64 field appears at 0xFFFFFFFF, not at 4 GiB") {
  CHECK(Layout::zip64_field_bytes(limit32 - 1, limit32 - 1) == 0);
  CHECK(Layout::zip64_field_bytes(limit32, 0) == 20);
  CHECK(Layout::zip64_field_bytes(0, limit32) == 12);
  CHECK(Layout::zip64_field_bytes(limit32, limit32) == 28);
}

TEST_CASE("the descriptor is absent, short or long") {
  CHECK(Layout::footer_bytes(0, 0) == 0);
  CHECK(Layout::footer_bytes(0, limit32) == 0);
  CHECK(Layout::footer_bytes(1, limit32 - 1) == 16);
  CHECK(Layout::footer_bytes(1, limit32) == 24);
  CHECK(Layout::footer_bytes(limit32, 0) == 24);
}

TEST_CASE("the short form of the rule says what the long one says") {
  for (const std::uint64_t alignment :
       {0u, 1u, 2u, 3u, 16u, 48u, 64u, 4096u, 65536u, 65537u, 131072u}) {
    const Layout layout{alignment};
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{17},
                                     std::uint64_t{4096}, limit32 - 1, limit32, most}) {
      for (const std::uint64_t header : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64},
                                         std::uint64_t{12345}, limit32 - 1, limit32, most}) {
        if (!layout.is_plain(size, header)) continue;
        REQUIRE(Layout::zip64_field_bytes(size, header) == 0);
        for (std::uint64_t name = 1; name < 140; ++name) {
          const Layout::Place place = layout.plain_place(header, name, size);
          REQUIRE(layout.payload_offset(header, name, size) == place.payload);
          REQUIRE(Layout::record_end(header, place.payload, size, size) == place.end);
        }
      }
    }
  }
  CHECK(Layout{64}.is_plain(16, 1 << 20));
  CHECK_FALSE(Layout{0}.is_plain(16, 0));
  CHECK_FALSE(Layout{48}.is_plain(16, 0));
  CHECK_FALSE(Layout{64}.is_plain(limit32, 0));
  CHECK_FALSE(Layout{64}.is_plain(0, limit32));
}

// Sizes and offsets of a real file.
TEST_CASE("the layout reproduces a real file") {
  const Layout layout;
  struct {
    std::uint64_t name_length, size, payload;
  } records[] = {{12, 6047, 64}, {19, 1, 6208}, {22, 2, 6336}, {13, 6, 6464}, {10, 65536, 6592}};
  std::uint64_t header = 0;
  for (const auto& record : records) {
    const auto payload = layout.payload_offset(header, record.name_length, record.size);
    REQUIRE(payload.has_value());
    CHECK(*payload == record.payload);
    header = Layout::record_end(header, *payload, record.size, record.size).value();
  }
  CHECK(header == 6592 + 65536 + 16);
}

TEST_CASE("a payload that needs no padding gets none") {
  CHECK(Layout{64}.payload_offset(0, 30, 1) == 64);
  CHECK(Layout{64}.payload_offset(0, 31, 1) == 128);
}

TEST_CASE("the alignment need not be a power of two, and 0 has no answer") {
  CHECK(Layout{63}.payload_offset(0, 10, 1) == 63);
  CHECK(Layout{100}.payload_offset(90, 10, 1) == 200);
  CHECK(Layout{1}.payload_offset(7, 10, 1) == 51);
  CHECK_FALSE(Layout{0}.payload_offset(0, 10, 1).has_value());
}

TEST_CASE("a longer zip64 field moves the payload across the threshold") {
  CHECK(Layout{1}.payload_offset(limit32 - 1, 10, 1) == limit32 - 1 + 44);
  CHECK(Layout{1}.payload_offset(limit32, 10, 1) == limit32 + 44 + 12);
  CHECK(Layout{1}.payload_offset(limit32, 10, limit32) == limit32 + 44 + 28);
}

TEST_CASE("the layout answers nothing where sums wrap") {
  CHECK_FALSE(Layout{64}.payload_offset(most - 20, 10, 1).has_value());
  CHECK_FALSE(
      Layout{std::uint64_t{1} << 63}.payload_offset(std::uint64_t{1} << 63, 1, 1).has_value());
  CHECK_FALSE(Layout::record_end(0, 64, most - 63, most - 63).has_value());
  CHECK_FALSE(Layout::record_end(0, most - 20, 15, limit32).has_value());
}

// What is written to a sink.
template <class Emit>
Bytes emitted(const Emit& emit) {
  Bytes out;
  bytes::ByteSink sink(out);
  emit(sink);
  return out;
}

Bytes local_header(const Layout& layout, const EmittedRecord& record) {
  return emitted([&](bytes::ByteSink& sink) { emit_local_header(sink, layout, record); });
}
Bytes descriptor(const EmittedRecord& record) {
  return emitted([&](bytes::ByteSink& sink) { emit_descriptor(sink, record); });
}
Bytes central_entry(const EmittedRecord& record) {
  return emitted([&](bytes::ByteSink& sink) { emit_central_entry(sink, record); });
}
Bytes end_records(std::uint64_t offset, std::uint64_t size, std::uint64_t records) {
  return emitted([&](bytes::ByteSink& sink) { emit_end(sink, offset, size, records); });
}

TEST_CASE("emits the local header that torch writes") {
  const Bytes header = local_header(Layout{}, {"a/x", 0, 4, 4, 0x12345678});
  const std::string expected =
      std::string(raw("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\x1F\0a/xFB"
                      "\x1B\0")) +
      std::string(27, 'Z');
  CHECK(header == to_bytes(expected));
}

TEST_CASE("emits the local header of an empty record without the descriptor flag") {
  const Bytes header = local_header(Layout{1}, {"a/x", 0, 0, 0, 0});
  CHECK(header ==
        to_bytes(raw("PK\x03\x04\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\x04\0"
                     "a/xFB\0\0")));
}

TEST_CASE("emits an offset-only zip64 field, which is not standard but what torch writes") {
  const Bytes header = local_header(Layout{1}, {"a/x", limit32, 4, 4, 0});
  CHECK(header ==
        to_bytes(raw("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\x10\0"
                     "a/x\x01\0\x08\0\xFF\xFF\xFF\xFF\0\0\0\0FB\0\0")));
}

TEST_CASE("emits a zip64 field whose stored size is 0 in the local header") {
  const Bytes header = local_header(Layout{1}, {"a/x", 0, limit32, limit32, 0});
  CHECK(header ==
        to_bytes(raw("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\x18\0"
                     "a/x\x01\0\x10\0\xFF\xFF\xFF\xFF\0\0\0\0\0\0\0\0\0\0\0\0FB\0\0")));
}

TEST_CASE("emits descriptors of three kinds") {
  CHECK(descriptor({"x", 0, 0, 0, 0}).empty());
  CHECK(descriptor({"x", 0, 4, 4, 0x12345678}) ==
        to_bytes(raw("PK\x07\x08\x78\x56\x34\x12\x04\0\0\0\x04\0\0\0")));
  CHECK(descriptor({"x", limit32, 4, 4, 0x12345678}) ==
        to_bytes(raw("PK\x07\x08\x78\x56\x34\x12\x04\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0")));
}

TEST_CASE("emits the central entry that torch writes") {
  CHECK(central_entry({"a/x", 64, 4, 4, 0x12345678}) ==
        to_bytes(raw("PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0\x78\x56\x34\x12\x04\0\0\0\x04\0"
                     "\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0a/x")));
}

TEST_CASE("emits a central entry whose large values stand in the zip64 field") {
  CHECK(central_entry({"a/x", limit32 + 1, limit32, limit32, 1}) ==
        to_bytes(raw("PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0\x01\0\0\0\xFF\xFF\xFF\xFF\xFF"
                     "\xFF\xFF\xFF\x03\0\x1C\0\0\0\0\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF"
                     "a/x\x01\0\x18\0\xFF\xFF\xFF\xFF\0\0\0\0\xFF\xFF\xFF\xFF\0\0\0\0\0\0\0\0"
                     "\x01\0\0\0")));
}

TEST_CASE("emits three end records of 98 bytes, the last of which refers to zip64 if need be") {
  CHECK(end_records(0x1000, 0x200, 5) ==
        to_bytes(raw("PK\x06\x06\x2C\0\0\0\0\0\0\0\x1E\x03\x2D\0\0\0\0\0\0\0\0\0"
                     "\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x10\0\0\0\0\0\0"
                     "PK\x06\x07\0\0\0\0\0\x12\0\0\0\0\0\0\x01\0\0\0"
                     "PK\x05\x06\0\0\0\0\x05\0\x05\0\0\x02\0\0\0\x10\0\0\0\0")));
  const Bytes large = end_records(limit32 + 7, 0x200, 0x12345);
  CHECK(Bytes(large.end() - 22, large.end()) ==
        to_bytes(raw("PK\x05\x06\0\0\0\0\xFF\xFF\xFF\xFF\0\x02\0\0\xFF\xFF\xFF\xFF\0\0")));
}

TEST_CASE("CRC-32 has its published check value and can be continued") {
  const Bytes digits = to_bytes("123456789");
  CHECK(crc32(digits) == 0xCBF43926);
  CHECK(crc32({}) == 0);
  const std::span<const std::byte> span = digits;
  CHECK(crc32(span.subspan(4), crc32(span.first(4))) == 0xCBF43926);
  CHECK(crc32({}, 0xCBF43926) == 0xCBF43926);
}

// "hello hello hello hello" by zlib, level 9, without header.
const Bytes deflated = to_bytes(raw("\xCB\x48\xCD\xC9\xC9\x57\xC8\x40\x27\x01"));
constexpr std::string_view inflated = "hello hello hello hello";

TEST_CASE("inflates to the declared size, and refuses every other stream") {
  Bytes out(inflated.size());
  REQUIRE_OK(inflate(deflated, out));
  CHECK(out == to_bytes(inflated));
  REQUIRE_OK(inflate(to_bytes(raw("\x03\0")), {}));
  Bytes shorter(inflated.size() - 1), longer(inflated.size() + 1);
  CHECK_FAILS(inflate(deflated, shorter), ErrorCode::corrupt, "more than the 22 bytes");
  CHECK_FAILS(inflate(deflated, longer), ErrorCode::corrupt, "inflates to 23 bytes, expected 24");
  CHECK_FAILS(inflate(std::span(deflated).first(5), out), ErrorCode::corrupt, "damaged or ends");
  CHECK_FAILS(inflate(to_bytes("\xFF\xFF\xFF"), out), ErrorCode::corrupt, "damaged or ends");
  CHECK_FAILS(inflate({}, out), ErrorCode::corrupt, "damaged or ends");
  Bytes more_behind = deflated;
  more_behind.push_back(std::byte{0});
  CHECK_FAILS(inflate(more_behind, out), ErrorCode::corrupt, "ends 1 bytes before the record");
}

TEST_CASE("knows what compressed bytes can become at most") {
  CHECK(max_inflated_size(2) == 2064);
  CHECK(max_inflated_size(most) == most);
}

}  // namespace
}  // namespace weightmap::zip
