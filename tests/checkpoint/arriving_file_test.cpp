// Remote files whose bytes arrive on demand in a copy.
#include "runtime/checkpoint/arriving_file.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/system/memory/sealed_memory.hpp"
#include "tests/support/byte_store.hpp"
#include "tests/support/failures.hpp"

namespace weightmap {
namespace {

using test::ByteStore;
using Ranges = std::vector<ByteRange>;
using Requests = std::vector<ByteStore::Request>;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
constexpr std::uint64_t size = 64 * mebi;

char byte_at(std::uint64_t offset) { return static_cast<char>(offset * 7 + offset / 251); }

// Made once.
const std::string& large_content() {
  static const std::string content = [] {
    std::string bytes(size, '\0');
    for (std::uint64_t i = 0; i < size; ++i) bytes[i] = byte_at(i);
    return bytes;
  }();
  return content;
}

// A file of 64 MiB, of which both ends of 1 MiB are read.
class Arriving {
 public:
  Arriving() : copy(os::make_memfd(size).value()) {
    store.put("a", large_content());
    const auto source = std::make_shared<test::StoreSource>(store, "a");
    file = ArrivingFile::make(source, identify(*source, {mebi, mebi}).value(), copy.get()).value();
    store.clear_requests();
  }

  // The bytes are right.
  void check_read(std::uint64_t offset, std::size_t length) const {
    std::vector<std::byte> bytes(length);
    REQUIRE_OK(file->read(offset, bytes));
    bool are_right = true;
    for (std::size_t i = 0; i < length; ++i)
      are_right = are_right && bytes[i] == static_cast<std::byte>(byte_at(offset + i));
    CHECK(are_right);
  }

  ByteStore store;
  os::UniqueFd copy;
  std::shared_ptr<ArrivingFile> file;
};

TEST_CASE("a short file is read whole, as long as it is") {
  ByteStore store;
  store.put("a", "0123456789");
  test::StoreSource source(store, "a");
  const Identified known = identify(source, {100, 3}).value();
  CHECK(known.version == RemoteVersion{10, "\"1\"", ""});
  CHECK(known.head.size() == 10);
  CHECK(known.tail.size() == 3);
  CHECK(known.tail.front() == std::byte{'7'});
}

TEST_CASE_FIXTURE(Arriving, "what the first reads got is there") {
  CHECK(file->version().size == size);
  CHECK(file->arrived() == Ranges{{0, mebi}, {size - mebi, mebi}});
  check_read(0, mebi);
  check_read(size - 10, 10);
  CHECK(store.requests().empty());
}

TEST_CASE_FIXTURE(Arriving, "a read in the middle gets some bytes around it, once") {
  check_read(20 * mebi + 5, 10);
  const Requests wanted = {{"a", 20 * mebi, 128 * 1024}};
  CHECK(store.requests() == wanted);
  check_read(20 * mebi, 128 * 1024);
  CHECK(store.requests() == wanted);
}

TEST_CASE_FIXTURE(Arriving, "reads behind the head grow, up to 32 MiB") {
  check_read(mebi, 1);
  check_read(4 * mebi, 1);
  check_read(16 * mebi, 1);
  CHECK(store.requests() == Requests{{"a", mebi, 3 * mebi},
                                     {"a", 4 * mebi, 12 * mebi},
                                     {"a", 16 * mebi, 16 * mebi},
                                     {"a", 32 * mebi, 16 * mebi}});
  CHECK(file->arrived() == Ranges{{0, 48 * mebi}, {size - mebi, mebi}});
}

TEST_CASE_FIXTURE(Arriving, "only the gaps of a read are requested") {
  check_read(20 * mebi, 1);
  store.clear_requests();
  check_read(19 * mebi, 2 * mebi);
  CHECK(store.requests() ==
        Requests{{"a", 19 * mebi, mebi}, {"a", 20 * mebi + 128 * 1024, mebi - 64 * 1024}});
}

TEST_CASE_FIXTURE(Arriving, "announced ranges are read together, those that are close as one") {
  store.rounds = 0;
  const Ranges ranges = {
      {20 * mebi + 1, 10}, {20 * mebi + 4096, 10}, {10 * mebi, 10}, {0, 10}, {size - 1, 2}};
  REQUIRE_OK(file->will_read(ranges));
  CHECK(store.rounds == 1);
  const Requests wanted = {{"a", 10 * mebi, 4096}, {"a", 20 * mebi, 8192}};
  CHECK(store.requests() == wanted);
  check_read(20 * mebi, 8192);
  REQUIRE_OK(file->will_read(ranges));
  CHECK(store.requests() == wanted);
}

TEST_CASE_FIXTURE(Arriving, "what is not kept is not read ahead") {
  file->stop_keeping();
  const ByteRange range{20 * mebi, 10};
  REQUIRE_OK(file->will_read({&range, 1}));
  CHECK(store.requests().empty());
}

TEST_CASE_FIXTURE(Arriving, "announced ranges that cannot be read are an error") {
  store.fail_from(0);
  const ByteRange range{20 * mebi, 10};
  CHECK_FAILS_IN(file->will_read({&range, 1}), ErrorCode::io, "HTTP 503", "https://host/a");
}

TEST_CASE_FIXTURE(Arriving, "what another one has put into the copy is not read") {
  file->add_arrived({30 * mebi, mebi});
  std::vector<std::byte> bytes(4, std::byte{'x'});
  REQUIRE_OK(file->read(30 * mebi, bytes));
  CHECK(bytes == std::vector<std::byte>(4));  // the zeros of the copy
  CHECK(store.requests().empty());
}

TEST_CASE_FIXTURE(Arriving, "without keeping, exactly the missing bytes are read each time") {
  file->stop_keeping();
  for (int i = 0; i < 2; ++i) {
    check_read(mebi - 5, 10);
    CHECK(store.requests() == Requests{{"a", mebi, 5}});
    store.clear_requests();
  }
  CHECK(file->arrived() == Ranges{{0, mebi}, {size - mebi, mebi}});
}

TEST_CASE_FIXTURE(Arriving, "once handed over, another one is asked for missing bytes") {
  Ranges asked;
  file->hand_over([&](ByteRange range) -> Result<void> {
    asked.push_back(range);
    if (range.offset > 40 * mebi) return failure(ErrorCode::cancelled, "was cancelled");
    return {};
  });
  check_read(0, 10);
  std::vector<std::byte> bytes(4);
  REQUIRE_OK(file->read(30 * mebi, bytes));
  CHECK_FAILS_IN(file->read(50 * mebi, bytes), ErrorCode::cancelled, "was cancelled",
                 "https://host/a");
  CHECK(asked == Ranges{{30 * mebi, 4}, {50 * mebi, 4}});
  CHECK(store.requests().empty());
}

TEST_CASE_FIXTURE(Arriving, "a range outside the file is refused, and nothing is requested") {
  std::vector<std::byte> bytes(4);
  CHECK_FAILS(file->read(size - 3, bytes), ErrorCode::corrupt, "leave the file of 67108864 bytes");
  CHECK_FAILS(file->read(~std::uint64_t{0} - 1, bytes), ErrorCode::corrupt, "leave the file");
  CHECK(store.requests().empty());
}

TEST_CASE_FIXTURE(Arriving, "a failed read leaves no trace") {
  const Ranges before = file->arrived();
  store.fail_from(0);
  std::vector<std::byte> bytes(4);
  CHECK_FAILS(file->read(20 * mebi, bytes), ErrorCode::io, "HTTP 503");
  CHECK(file->arrived() == before);
  store.fail_from(ByteStore::never);
  check_read(20 * mebi, 4);
}

TEST_CASE_FIXTURE(Arriving, "files of it read through it, and count as unchanged") {
  const os::File opened = ArrivingFile::open(file).value();
  std::vector<std::byte> bytes(1);
  REQUIRE_OK(opened.read(20 * mebi + 1, bytes));
  CHECK(bytes[0] == static_cast<std::byte>(byte_at(20 * mebi + 1)));
  CHECK(opened.check_unchanged().has_value());
  CHECK(opened.current_generation().value() == opened.generation());
}

TEST_CASE_FIXTURE(Arriving, "any number of threads may read") {
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (std::size_t number = 0; number < right.size(); ++number)
    threads.emplace_back([&, number] {
      std::vector<std::byte> bytes(1000);
      for (std::uint64_t at = number; at + 1000 < 20 * mebi; at += 997'123)
        right[number] +=
            file->read(at, bytes).has_value() && bytes[0] == static_cast<std::byte>(byte_at(at));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 22));
  std::uint64_t all = 0;
  for (const ByteRange& range : file->arrived()) all += range.length;
  CHECK(store.bytes() == all - 2 * mebi);  // nothing twice
}

TEST_CASE("an empty file is none") {
  ByteStore store;
  store.put("a", "");
  CHECK_FAILS_IN(ArrivingFile::in_memory(std::make_shared<test::StoreSource>(store, "a")),
                 ErrorCode::not_a_checkpoint, "is empty", "https://host/a");
}

// A source that lies about the size.
class Endless final : public RangeSource {
 public:
  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte>, std::span<std::byte>) override {
    return RemoteVersion{.size = ~std::uint64_t{0}};
  }
  Result<void> read(RangeReader&) override { return {}; }
  Result<std::unique_ptr<RangeSource>> sibling(const std::string&) const override {
    return failure(ErrorCode::unsupported, "knows no folder");
  }
  RangeCounts counts() const noexcept override { return {}; }

 private:
  const std::string name_ = "endless";
};

TEST_CASE("a size that no file has is an error") {
  CHECK_FAILS_IN(ArrivingFile::in_memory(std::make_shared<Endless>()), ErrorCode::io,
                 "cannot make a file of 18446744073709551615 bytes", "endless");
}

}  // namespace
}  // namespace weightmap
