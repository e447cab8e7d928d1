#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/texts.hpp"

namespace weightmap::bytes {
namespace {

using test::bytes_of;
using test::text_of;

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

TEST_CASE("contains never forms a sum that wraps") {
  CHECK(contains(10, 0, 10));
  CHECK(contains(10, 10, 0));
  CHECK_FALSE(contains(10, 10, 1));
  CHECK_FALSE(contains(10, 11, 0));
  CHECK_FALSE(contains(10, 1, most));
  CHECK_FALSE(contains(10, most, 11));
  CHECK(contains(most, most, 0));
}

TEST_CASE("checked arithmetic tells a sum and a product that do not fit") {
  std::uint64_t value = 0;
  CHECK(checked_add<std::uint64_t>(most - 1, 1, &value));
  CHECK(value == most);
  CHECK_FALSE(checked_add<std::uint64_t>(most, 1, &value));
  CHECK(checked_mul<std::uint64_t>(1u << 31, 2, &value));
  CHECK(value == 0x100000000u);
  CHECK_FALSE(checked_mul<std::uint64_t>(std::uint64_t{1} << 62, 4, &value));
}

TEST_CASE("a cursor reads little-endian fields in order") {
  ByteCursor cursor(bytes_of({"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e!", 15}));
  CHECK(cursor.u16() == 0x0201);
  CHECK(cursor.u32() == 0x06050403);
  CHECK(cursor.u64() == 0x0e0d0c0b0a090807u);
  CHECK(text_of(cursor.take(1)) == "!");
  CHECK(cursor.left() == 0);
  CHECK_FALSE(cursor.failed());
}

TEST_CASE("a cursor that failed stays failed and gives zeros") {
  ByteCursor cursor(bytes_of("abc"));
  CHECK(cursor.u32() == 0);
  CHECK(cursor.failed());
  CHECK(cursor.u16() == 0);
  CHECK(cursor.take(1).empty());
  CHECK(cursor.failed());
}

TEST_CASE("a cursor refuses a length near the end of the address space") {
  ByteCursor cursor(bytes_of("abc"));
  cursor.skip(1);
  CHECK(cursor.take(std::numeric_limits<std::size_t>::max()).empty());
  CHECK(cursor.failed());
}

TEST_CASE("a sink writes little-endian fields") {
  std::vector<std::byte> out;
  ByteSink sink(out);
  sink.u16(0x0201);
  sink.u32(0x06050403);
  sink.u64(0x0e0d0c0b0a090807u);
  sink.fill(2, 'Z');
  sink.text("end");
  CHECK(text_of(out) == "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0eZZend");
}

TEST_CASE("finds the first byte that belongs to no character") {
  CHECK(valid_prefix("") == 0);
  CHECK(valid_prefix("0123456789") == 10);
  CHECK(valid_prefix("gr\xC3\xBC\xC3\x9F \xE6\x97\xA5 \xF0\x9F\x90\x8D") == 15);
  CHECK(valid_prefix("01234567\xED\xA0\x80") == 11);  // a lone surrogate
  CHECK(valid_prefix("\xF4\x8F\xBF\xBF") == 4);
  CHECK(valid_prefix("\xF4\x90\x80\x80") == 0);  // beyond U+10FFFF
  CHECK(valid_prefix("\xF5\x80\x80\x80") == 0);
  CHECK(valid_prefix("0123456\x80") == 7);
  CHECK(valid_prefix("01234567\xC3") == 8);
  CHECK(is_utf8("0123456789 gr\xC3\xBC\xC3\x9F"));
  CHECK_FALSE(is_utf8("01234567\xED\xA0\x80"));  // a lone surrogate
  CHECK_FALSE(is_utf8("01234567\x80"));
  CHECK(valid_prefix("ab\xC3(") == 2);
  CHECK(valid_prefix("ab\xC3\xC3\xBC") == 2);
  CHECK(valid_prefix(std::string_view("ab\xC3\xBC", 3)) == 2);
  CHECK(valid_prefix("\xC0\x80") == 0);  // longer than it need be
  CHECK(valid_prefix("\xE0\x9F\xBF") == 0);
  CHECK(valid_prefix("\xF0\x8F\xBF\xBF") == 0);
}

TEST_CASE("escape leaves printable text alone") {
  CHECK(escape("layers.0.weight") == "layers.0.weight");
  CHECK(escape("") == "");
  CHECK(escape("gr\xC3\xBC\xC3\x9F \xE6\x97\xA5 \xF0\x9F\x90\x8D") ==
        "gr\xC3\xBC\xC3\x9F \xE6\x97\xA5 \xF0\x9F\x90\x8D");
}

TEST_CASE("escape shows control characters, quotes and backslashes as hex") {
  CHECK(escape("a\nb") == "a\\x0Ab");
  CHECK(escape(std::string_view("\0", 1)) == "\\x00");
  CHECK(escape("\x1B[31m\x7F") == "\\x1B[31m\\x7F");
  CHECK(escape("say \"hi\" \\") == "say \\x22hi\\x22 \\x5C");
}

TEST_CASE("escape shows bytes that are not UTF-8 as hex") {
  CHECK(escape("\xFF") == "\\xFF");
  CHECK(escape("\xC3") == "\\xC3");                             // truncated
  CHECK(escape("\xC0\xAF") == "\\xC0\\xAF");                    // longer than need be
  CHECK(escape("\xED\xA0\x80") == "\\xED\\xA0\\x80");           // a surrogate
  CHECK(escape("\xF4\x90\x80\x80") == "\\xF4\\x90\\x80\\x80");  // beyond Unicode
  CHECK(escape("\xE2\x82z") == "\\xE2\\x82z");
}

TEST_CASE("escape shows what would reorder or break a line on a terminal") {
  CHECK(escape("\xE2\x80\xAE"
               "fdp") ==
        "\\xE2\\x80\\xAE"
        "fdp");
  CHECK(escape("\xC2\x85") == "\\xC2\\x85");
  CHECK(escape("\xC2\x9F\xC2\xA0") == "\\xC2\\x9F\xC2\xA0");
}

TEST_CASE("escape cuts long text between characters") {
  CHECK(escape("abcdef", 6) == "abcdef");
  CHECK(escape("abcdefg", 6) == "abcdef...");
  CHECK(escape("a\xC3\xBC", 2) == "a...");
  CHECK(quote("ab", 1) == "\"a...\"");
}

TEST_CASE("a message lists eight numbers at most") {
  CHECK(bytes::listed({}) == "[]");
  CHECK(bytes::listed(std::array<std::int64_t, 2>{3, 0}) == "[3, 0]");
  CHECK(bytes::listed(std::vector<std::int64_t>(64, 1)) == "[1, 1, 1, 1, 1, 1, 1, 1, ...]");
}

TEST_CASE("a memory source reads what it has and refuses the rest") {
  const MemorySource source(bytes_of("0123456789"));
  std::array<std::byte, 4> out{};
  REQUIRE_OK(source.read(6, out));
  CHECK(text_of(out) == "6789");
  CHECK_FAILS(source.read(7, out), ErrorCode::corrupt, "leave the file of 10 bytes");
  CHECK_FAILS(source.read(most, out), ErrorCode::corrupt, "leave the file");
}

struct ReadCacheFixture {
  MemorySource source{bytes_of("0123456789abcdefghij")};
  ReadCache cache{source, *std::pmr::new_delete_resource()};
};

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache reads a range once") {
  CHECK(text_of(cache.bytes(2, 8).value()) == "23456789");
  CHECK(text_of(cache.bytes(4, 3).value()) == "456");
  CHECK(text_of(cache.bytes(10, 0).value()) == "");
  CHECK(cache.reads() == 1);
  CHECK(cache.bytes_read() == 8);
  CHECK(text_of(cache.bytes(4, 7).value()) == "456789a");
  CHECK(cache.reads() == 2);
  CHECK(cache.bytes_read() == 15);
}

TEST_CASE_FIXTURE(ReadCacheFixture,
                  "a read cache refuses a range outside the source without reading") {
  CHECK_FAILS(cache.bytes(15, 6), ErrorCode::corrupt, "6 bytes from offset 15");
  CHECK_FAILS(cache.bytes(1, most), ErrorCode::corrupt, "leave the file");
  CHECK_FAILS(cache.extend_back(21, 0), ErrorCode::corrupt, "leave the file");
  CHECK(cache.reads() == 0);
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache extends backwards by what is missing") {
  const auto tail = cache.bytes(15, 5).value();
  CHECK(text_of(cache.extend_back(10, 10).value()) == "abcdefghij");
  CHECK(cache.reads() == 2);
  CHECK(cache.bytes_read() == 10);
  CHECK(text_of(tail) == "fghij");  // what was given out stays
  CHECK(text_of(cache.extend_back(12, 8).value()) == "cdefghij");
  CHECK(cache.reads() == 2);
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache extends backwards without a window to extend") {
  CHECK(text_of(cache.extend_back(10, 5).value()) == "abcde");
  CHECK(cache.bytes_read() == 5);
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache extends no window that ends elsewhere") {
  REQUIRE(cache.bytes(12, 3).has_value());
  CHECK(text_of(cache.extend_back(8, 12).value()) == "89abcdefghij");
  CHECK(cache.bytes_read() == 15);
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache copies from a window, or read without keeping") {
  REQUIRE(cache.bytes(0, 10).has_value());
  std::array<std::byte, 3> out{};
  REQUIRE_OK(cache.copy(7, out));
  CHECK(text_of(out) == "789");
  CHECK(cache.reads() == 1);
  REQUIRE_OK(cache.copy(9, out));
  CHECK(text_of(out) == "9ab");
  REQUIRE_OK(cache.copy(9, out));
  CHECK(cache.reads() == 3);
  CHECK_FAILS(cache.copy(18, out), ErrorCode::corrupt, "leave the file");
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache hands over a buffer and still serves it") {
  const auto part = cache.bytes(0, 10).value().subspan(3, 2);
  const Buffer taken = cache.take(part);
  CHECK(taken.size() == 10);
  CHECK(text_of(taken.span()) == "0123456789");
  CHECK(text_of(cache.bytes(5, 2).value()) == "56");
  CHECK(cache.reads() == 1);
}

TEST_CASE_FIXTURE(ReadCacheFixture, "a read cache has nothing to hand over for foreign bytes") {
  REQUIRE(cache.bytes(0, 10).has_value());
  CHECK(cache.take(bytes_of("elsewhere")).size() == 0);
  CHECK(cache.take({}).size() == 0);
}

TEST_CASE("takes no other spelling for a number") {
  for (const char* text :
       {"",  "00", "01", "007", "00000001", "100000000", "+1",    "-1",  " 1",  "1 ",  "1a",
        "a", "/",  ":",  "1/",  ":1",       "\xB1",      "1\x80", "0x1", "1.0", "1e3", "9999999:"})
    CHECK_MESSAGE(decimal(text) == no_number, text);
  CHECK(decimal(std::string_view("\0", 1)) == no_number);
  CHECK(decimal(std::string_view("1\0", 2)) == no_number);
}

TEST_CASE("each byte of a number must be a digit") {
  for (std::size_t length = 1; length <= most_digits; ++length) {
    for (std::size_t at = 0; at < length; ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string text(length, '5');
        text[at] = static_cast<char>(byte);
        const bool is_number = byte >= (at == 0 && length > 1 ? '1' : '0') && byte <= '9';
        REQUIRE((decimal(text) != no_number) == is_number);
      }
    }
  }
}

// --- Numbers in text ---------------------------------------------------------------------------

TEST_CASE("a number is taken off the front of a text, which stays as it is without one") {
  std::string_view text = "17 20";
  CHECK(take_number(text) == 17);
  CHECK(text == " 20");
  CHECK_FALSE(take_number(text).has_value());
  CHECK(text == " 20");
  text = "1fG";
  CHECK(take_number(text, 16) == 0x1F);
  CHECK(text == "G");
  for (const std::string_view none : {"", "-1", "+1", "x", "18446744073709551616"}) {
    text = none;
    CHECK_FALSE(take_number(text).has_value());
    CHECK(text == none);
  }
}

TEST_CASE("a number is the whole text, and holds 64 bits") {
  CHECK(number("0") == 0);
  CHECK(number("007") == 7);
  CHECK(number("777", 8) == 511);
  CHECK(number("18446744073709551615") == 18446744073709551615U);
  for (const char* const none : {"", " 1", "1 ", "-1", "0x1", "1.5", "18446744073709551616"})
    CHECK_FALSE(number(none).has_value());
}

}  // namespace
}  // namespace weightmap::bytes
