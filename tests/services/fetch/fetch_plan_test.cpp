// What a fetch asks for, in which order; and the checksums of what arrives in pieces.
#include "runtime/services/fetch/fetch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/services/fetch/arrival_rate.hpp"
#include "runtime/services/fetch/destination.hpp"
#include "runtime/services/fetch/fetching.hpp"
#include "runtime/services/fetch/journal.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "runtime/services/fetch/storage_sums.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/services/fetch/scripted_source.hpp"
#include "tests/support/failures.hpp"

using namespace weightmap;

namespace {

using Ranges = std::vector<ByteRange>;

bytes::RangeSet set_of(const Ranges& ranges) {
  bytes::RangeSet set;
  for (const ByteRange& range : ranges) set.add(range);
  return set;
}

Ranges rest_of(FetchPlan& plan) {
  Ranges taken;
  while (const std::optional<ByteRange> range = plan.next()) taken.push_back(*range);
  return taken;
}

// Memory of which only so many ranges are in use at a time.
class IntoText final : public Destination {
 public:
  IntoText(std::string& text, std::size_t most) : text_(text), free_(most) {}

  bool prepare(ByteRange) override { return false; }
  Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) override {
    const std::lock_guard lock(mutex_);
    if (free_ == 0) return std::nullopt;
    --free_;
    return std::as_writable_bytes(std::span(text_)).subspan(range.offset, range.length);
  }
  Result<void> keep(ByteRange range, std::span<std::byte>) override {
    seen.push_back(range);
    ++times_kept;
    return kept;
  }
  Result<void> settle() override {
    was_settled = true;
    return settled;
  }
  void take_back(ByteRange, std::span<std::byte>) override {
    const std::lock_guard lock(mutex_);
    ++free_;
  }

  Result<void> kept;
  Result<void> settled;
  std::atomic<bool> was_settled = false;
  std::atomic<int> times_kept = 0;
  Ranges seen;  // by keep()

 private:
  std::string& text_;
  std::mutex mutex_;
  std::size_t free_;
};

bytes::Sha256::Digest sha256_of(std::string_view text) {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  return sum.digest();
}

// A text that says how far it was read.
class ReadText final : public bytes::ByteSource {
 public:
  explicit ReadText(const std::string& text) : text_(std::as_bytes(std::span(text))) {}
  std::uint64_t size() const noexcept override { return text_.size(); }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    TRY(text_.read(offset, out));
    const std::lock_guard lock(mutex_);
    end_ = std::max(end_, offset + out.size());
    changed_.notify_all();
    return {};
  }
  // Blocks until all before `end` was read; returns whether nothing else was.
  bool is_read_until(std::uint64_t end) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return end_ >= end; });
    return end_ == end;
  }

 private:
  const bytes::MemorySource text_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::uint64_t end_ = 0;
};

struct FetchingFixture {
  test::Store store{.files = {{"text", test::noise(100, 1)}}, .at_a_time = 1};
  std::string text = std::string(100, '\0');
  std::unique_ptr<RangeSource> source = test::source_of(store, "text");

  std::optional<Fetching> fetching;
  void begin(Destination& into, std::vector<SummedStorage> storages = {},
             RunningSum* whole = nullptr) {
    fetching.emplace(*source, into, FetchPlan(100, {}, 10), StorageSums(std::move(storages)), 100,
                     whole);
  }
  Result<void> run() { return fetching->run({}); }
  bool is_right() { return text == store.files["text"]; }
};

const RemoteVersion version{100, "\"a\"", ""};
const std::string first = first_line("https://host/model.pt", version);

}  // namespace

TEST_CASE("A plan has what is missing, cut at the multiples of a chunk") {
  FetchPlan plan(95, set_of({{0, 5}, {25, 2}, {90, 5}}), 10);
  CHECK(rest_of(plan) == Ranges{{5, 5},
                                {10, 10},
                                {20, 5},
                                {27, 3},
                                {30, 10},
                                {40, 10},
                                {50, 10},
                                {60, 10},
                                {70, 10},
                                {80, 10}});
  CHECK(plan.is_empty());
}

TEST_CASE("A plan of a file that is there is empty") {
  FetchPlan plan(20, set_of({{0, 20}}), 10);
  CHECK(plan.is_empty());
  CHECK_FALSE(plan.next());
  CHECK(plan.upcoming(3).empty());
}

TEST_CASE("What is put first comes first, each piece once") {
  FetchPlan plan(60, {}, 10);
  plan.put_first({55, 5});
  plan.put_first({19, 2});  // of two pieces
  CHECK(plan.upcoming(4) == Ranges{{10, 10}, {20, 10}, {50, 10}, {0, 10}});
  CHECK(plan.next() == ByteRange{10, 10});
  plan.put_first({10, 50});
  CHECK(rest_of(plan) == Ranges{{20, 10}, {30, 10}, {40, 10}, {50, 10}, {0, 10}});
  CHECK(plan.is_empty());
}

TEST_CASE("The front of a piece ends with a page, and its rest comes next") {
  constexpr std::uint64_t kibi = 1024;
  FetchPlan plan(1024 * kibi, set_of({{0, 10}}), 512 * kibi);
  CHECK(plan.next(300 * kibi) == ByteRange{10, 256 * kibi - 10});
  plan.put_first({700 * kibi, 1});
  CHECK(plan.next(300 * kibi) == ByteRange{512 * kibi, 256 * kibi});
  plan.put_first({0, 100});  // which was taken
  CHECK(plan.next() == ByteRange{768 * kibi, 256 * kibi});
  plan.add_again({0, 200 * kibi});
  CHECK(plan.next(128 * kibi) == ByteRange{0, 128 * kibi});
  CHECK(plan.next(128 * kibi) == ByteRange{128 * kibi, 72 * kibi});
  CHECK(plan.next(kibi) == ByteRange{256 * kibi, 256 * kibi});  // less than a page
  CHECK(plan.is_empty());
}

TEST_CASE("The rate of arrivals is that of the last second") {
  using namespace std::chrono_literals;
  const ArrivalRate::Time began{};
  ArrivalRate rate(began, 500);
  rate.note(began, 500);
  CHECK(rate.bytes_in(1s) == 0);
  rate.note(began + 500ms, 1500);
  CHECK(rate.bytes_in(1s) == 2000);
  rate.note(began + 1s, 1500);
  CHECK(rate.bytes_in(2s) == 2000);
  rate.note(began + 1500ms, 9000);
  CHECK(rate.bytes_in(2s) == 2000);
  rate.note(began + 3s, 9500);
  CHECK(rate.bytes_in(1s) == 4000);
}

TEST_CASE("What is wanted again comes before all others") {
  FetchPlan plan(30, {}, 10);
  CHECK(plan.next() == ByteRange{0, 10});
  plan.put_first({25, 1});
  plan.add_again({5, 10});
  CHECK_FALSE(plan.is_empty());
  CHECK(rest_of(plan) == Ranges{{5, 5}, {10, 5}, {20, 10}, {10, 10}});
}

TEST_CASE("The sum of a storage is complete with its last byte, in any order of the pieces") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  const auto bytes = std::as_bytes(std::span(text));
  const auto crc_of = [&](ByteRange range) {
    return zip::crc32(bytes.subspan(range.offset, range.length));
  };
  const std::vector<SummedStorage> storages{
      {{10, 15}, crc_of({10, 15}), "0"}, {{30, 3}, crc_of({30, 3}), "1"}, {{33, 60}, 1, "2"}};
  std::vector<std::uint64_t> pieces{0, 7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 91, 98};
  for (std::size_t turn = 0; turn < 2 * pieces.size(); ++turn) {
    std::rotate(pieces.begin(), pieces.begin() + 4, pieces.end());
    if (turn == pieces.size()) std::reverse(pieces.begin(), pieces.end());
    StorageSums sums(storages);
    std::vector<std::string> complete;
    for (const std::uint64_t at : pieces)
      for (const auto& [storage, crc] :
           sums.add(at, bytes.subspan(at).first(std::min<std::size_t>(7, bytes.size() - at)))) {
        complete.emplace_back(storage->key);
        CHECK(crc == crc_of(storage->range));
      }
    std::sort(complete.begin(), complete.end());
    CHECK(complete == std::vector<std::string>{"0", "1", "2"});
  }
}

TEST_CASE("Parts of two storages that lie side by side are not joined") {
  const std::string text = "0123456789abcdefghij";
  const auto bytes = std::as_bytes(std::span(text));
  const std::vector<SummedStorage> storages{{{0, 10}, zip::crc32(bytes.first(10)), "0"},
                                            {{10, 10}, zip::crc32(bytes.subspan(10)), "1"}};
  const auto is_right = [](const std::vector<StorageSums::Complete>& complete) {
    return complete.size() == 1 && complete.front().crc32 == complete.front().storage->crc32;
  };
  StorageSums forward(storages);
  CHECK(forward.add(5, bytes.subspan(5, 5)).empty());
  CHECK(is_right(forward.add(10, bytes.subspan(10, 10))));
  CHECK(is_right(forward.add(0, bytes.first(5))));
  StorageSums backward(storages);
  CHECK(backward.add(10, bytes.subspan(10, 5)).empty());
  CHECK(is_right(backward.add(0, bytes.first(10))));
  CHECK(is_right(backward.add(15, bytes.subspan(15, 5))));
}

TEST_CASE("A storage may be summed once more") {
  const std::string text = "0123456789";
  const auto bytes = std::as_bytes(std::span(text));
  StorageSums sums({{{2, 6}, zip::crc32(bytes.subspan(2, 6)), "0"}});
  CHECK(sums.add(0, bytes.first(5)).empty());
  CHECK(sums.add(5, bytes.first(5)).size() == 1);  // the wrong ones
  CHECK(sums.add(4, bytes.subspan(4, 4)).empty());
  const auto complete = sums.add(2, bytes.subspan(2, 2));
  REQUIRE(complete.size() == 1);
  CHECK(complete.front().crc32 == complete.front().storage->crc32);
}

TEST_CASE("Sums know what is in no storage, and which storages a range touches") {
  const StorageSums sums({{{30, 10}, 1, "1"}, {{10, 10}, 1, "0"}});
  CHECK(sums.without_storages({0, 50}) == Ranges{{0, 10}, {20, 10}, {40, 10}});
  CHECK(sums.without_storages({12, 5}).empty());
  CHECK(sums.with_storages({15, 1}) == ByteRange{10, 10});
  CHECK(sums.with_storages({19, 12}) == ByteRange{10, 30});
  CHECK(sums.with_storages({5, 30}) == ByteRange{5, 35});
  CHECK(sums.with_storages({20, 10}) == ByteRange{20, 10});
}

TEST_CASE("A journal says what is there of its version") {
  const std::string text = first + lines_of(Ranges{{0, 10}, {40, 60}}) + lines_of(Ranges{{10, 5}});
  CHECK(read_journal(text, first, 100).ranges() == Ranges{{0, 15}, {40, 60}});
  CHECK(read_journal(first, first, 100).ranges().empty());
  CHECK(first_line("s", {1, "\"t\"", "i"}) ==
        "b0ff7f56 weightmap fetch 1 1 \"\\x22t\\x22\" \"i\" \"s\"\n");
  CHECK(lines_of(Ranges{{10, 5}}) == "8e8f45c9 10 5\n");
}

TEST_CASE("A line that its writer could not finish counts for nothing") {
  const std::string text = first + lines_of(Ranges{{0, 10}, {40, 60}});
  CHECK(read_journal(text.substr(0, text.size() - 1), first, 100).ranges() == Ranges{{0, 10}});
}

TEST_CASE("A journal of another version says nothing") {
  const std::string text = first + lines_of(Ranges{{0, 10}});
  const auto says_nothing = [&](const std::string& source, const RemoteVersion& other) {
    return read_journal(text, first_line(source, other), other.size).ranges().empty();
  };
  CHECK_FALSE(says_nothing("https://host/model.pt", {100, "\"a\"", ""}));
  CHECK(says_nothing("https://host/model.pt", {101, "\"a\"", ""}));
  CHECK(says_nothing("https://host/model.pt", {100, "\"b\"", ""}));
  CHECK(says_nothing("https://host/model.pt", {100, "\"a\"", "1"}));
  CHECK(says_nothing("https://host/other.pt", {100, "\"a\"", ""}));
}

TEST_CASE("A journal with any damaged byte says nothing, or less") {
  const std::string text = first + lines_of(Ranges{{0, 10}, {40, 60}});
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CAPTURE(at);
    const Ranges said = read_journal(damaged, first, 100).ranges();
    CHECK((said.empty() || said == Ranges{{0, 10}}));
  }
}

TEST_CASE("A journal whose ranges leave the file says nothing") {
  CHECK(read_journal(first + lines_of(Ranges{{0, 10}, {50, 51}}), first, 100).ranges().empty());
  CHECK(
      read_journal(first + lines_of(Ranges{{~std::uint64_t{0}, 2}}), first, 100).ranges().empty());
}

TEST_CASE_FIXTURE(FetchingFixture, "What is preferred while a fetch runs goes before all others") {
  IntoText into(text, 9);
  const auto storage = std::as_bytes(std::span(store.files["text"])).subspan(60, 30);
  begin(into, {{{60, 30}, zip::crc32(storage), "0"}});
  store.before_next = [this] {
    if (store.asked.size() == 1) fetching->prefer({75, 1});
  };
  REQUIRE_OK(run());
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{0, 60, 70, 80, 10, 20, 30, 40, 50, 90});
  CHECK(is_right());
  CHECK(fetching->report().verified_bytes == 30);
}

TEST_CASE_FIXTURE(FetchingFixture, "A source may want more at a time than there is memory for") {
  for (std::size_t most = 1; most < 5; ++most) {
    text.assign(100, '\0');
    store.at_a_time = 4;
    IntoText into(text, most);
    begin(into);
    REQUIRE_OK(run());
    CHECK(is_right());
  }
  CHECK(store.bytes == 400);
}

TEST_CASE_FIXTURE(FetchingFixture, "A fetch ends with the error of its destination") {
  IntoText into(text, 2);
  into.kept = failure(ErrorCode::io, "the disk is full");
  begin(into);
  CHECK_FAILS(run(), ErrorCode::io, "the disk is full");
  CHECK_FAILS(fetching->wait({50, 1}), ErrorCode::io, "the disk is full");
}

TEST_CASE_FIXTURE(FetchingFixture, "A fetch ends with the error of what is to be made safe") {
  IntoText into(text, 2);
  into.settled = failure(ErrorCode::io, "the disk is full");
  begin(into);
  store.before_next = [&into] {  // the keeper has nothing to keep
    while (!into.was_settled) std::this_thread::yield();
  };
  CHECK_FAILS(run(), ErrorCode::io, "the disk is full");
}

TEST_CASE_FIXTURE(FetchingFixture, "A storage that is one range is compared again, all of it") {
  IntoText into(text, 2);
  const auto storage = std::as_bytes(std::span(store.files["text"])).subspan(60, 10);
  begin(into, {{{60, 10}, zip::crc32(storage), "0"}});
  store.damage_at(65, 1);
  REQUIRE_OK(run());
  CHECK(is_right());
  CHECK(fetching->report().verified_bytes == 10);
  CHECK(std::count(into.seen.begin(), into.seen.end(), ByteRange{60, 10}) == 2);
}

// A storage whose last byte came early might be asked for again while the range is on its way.
TEST_CASE("The last unit of a range is kept when all of the range has arrived") {
  struct TellsAll final : test::PlainSource {
    using PlainSource::PlainSource;
    bool tells_began() const noexcept override { return true; }
    Result<void> read(RangeReader& reader) override {
      while (const std::optional<RangeRequest> request = reader.next()) {
        reader.began(*request, request->into.size());
        TRY(reader.arrived(*request));
      }
      return {};
    }
  } source("https://host/text");
  std::string text(4 * test::mebi, '\0');
  IntoText into(text, 2);
  Fetching fetching(source, into, FetchPlan(text.size(), {}, text.size()), StorageSums({}),
                    text.size());
  REQUIRE_OK(fetching.run({}));
  CHECK(into.seen == Ranges{{0, 3 * test::mebi}, {3 * test::mebi, test::mebi}});
}

TEST_CASE("What comes slowly is kept by the page") {
  struct Slow final : test::PlainSource {
    explicit Slow(IntoText& kept) : PlainSource("https://host/text"), into(kept) {}
    IntoText& into;
    bool tells_began() const noexcept override { return true; }
    Result<void> read(RangeReader& reader) override {
      const RangeRequest request = *reader.next();
      do reader.began(request, 100 * 1024 + 1);
      while (into.times_kept == 0);
      return reader.arrived(request);
    }
  };
  std::string text(test::mebi, '\0');
  IntoText into(text, 2);
  Slow source(into);
  Fetching fetching(source, into, FetchPlan(text.size(), {}, text.size()), StorageSums({}),
                    text.size());
  REQUIRE_OK(fetching.run({}));
  const std::uint64_t kept = (100 * 1024 + 1) / os::page_bytes() * os::page_bytes();
  CHECK(into.seen == Ranges{{0, kept}, {kept, test::mebi - kept}});
}

TEST_CASE("Of a source that does not tell what began short ranges are asked for at first") {
  constexpr std::uint64_t kibi = 1024;
  test::Store store{.files = {{"text", test::noise(600 * kibi, 1)}}, .tells_began = false};
  const auto source = test::source_of(store, "text");
  std::string text(600 * kibi, '\0');
  IntoText into(text, 4);
  Fetching fetching(*source, into, FetchPlan(text.size(), {}, text.size()), StorageSums({}),
                    text.size());
  REQUIRE_OK(fetching.run({}));
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{0, 256 * kibi, 512 * kibi});
  CHECK(text == store.files["text"]);
}

TEST_CASE("Of a file that is summed short ranges are asked for at first") {
  test::Store store{.files = {{"text", test::noise(9 * test::mebi, 1)}}};
  const auto source = test::source_of(store, "text");
  std::string text(9 * test::mebi, '\0');
  const ReadText file(text);
  RunningSum sum(file);
  IntoText into(text, 4);
  Fetching fetching(*source, into, FetchPlan(text.size(), {}, text.size()), StorageSums({}),
                    text.size(), &sum);
  REQUIRE_OK(fetching.run({}));
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{0, 4 * test::mebi, 8 * test::mebi});
  CHECK(sum.finish() == sha256_of(store.files["text"]));
}

TEST_CASE_FIXTURE(FetchingFixture,
                  "A source that ends too early is an error, and no endless loop") {
  struct EndsEarly final : test::PlainSource {
    using PlainSource::PlainSource;
    bool takes = false;
    Result<void> read(RangeReader& reader) override {
      if (takes) static_cast<void>(reader.next());
      return {};
    }
  };
  for (const bool takes : {false, true}) {
    auto early = std::make_unique<EndsEarly>("https://host/text");
    early->takes = takes;
    source = std::move(early);
    IntoText into(text, 10);  // of all ranges
    begin(into);
    CHECK_FAILS(run(), ErrorCode::io, "ended a read before all bytes had arrived");
  }
}

TEST_CASE_FIXTURE(FetchingFixture, "What is there already is compared, and waited for by nobody") {
  text = store.files["text"];
  text[65] ^= 1;
  IntoText into(text, 2);
  const auto storage = std::as_bytes(std::span(store.files["text"])).subspan(60, 30);
  fetching.emplace(*source, into, FetchPlan(100, set_of({{0, 100}}), 10),
                   StorageSums({{{60, 30}, zip::crc32(storage), "0"}}), 100);
  fetching->add_present({0, 100}, std::as_bytes(std::span(text)));
  REQUIRE_OK(fetching->wait({0, 60}));
  REQUIRE_OK(run());
  CHECK(is_right());
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{60, 70, 80});
}

TEST_CASE("A running sum reads what is there, while the rest is on its way") {
  const std::string text = test::noise(700'000, 1);
  const ReadText file(text);
  RunningSum sum(file);
  sum.reach(100);
  CHECK(file.is_read_until(100));
  sum.reach(90);
  sum.reach(600'000);
  CHECK(file.is_read_until(600'000));
  CHECK(sum.finish() == sha256_of(text));
  CHECK(sum.finish() == sha256_of(text));
}

TEST_CASE("A running sum that nobody finishes ends") {
  const std::string text = "abc";
  const ReadText file(text);
  RunningSum sum(file);
  sum.reach(1);
}

TEST_CASE("A running sum fails as its file does, and as its progress says") {
  struct Unread final : bytes::ByteSource {
    mutable std::atomic<bool> waits = true;
    std::uint64_t size() const noexcept override { return 3; }
    Result<void> read(std::uint64_t, std::span<std::byte>) const override {
      while (waits) std::this_thread::yield();
      return failure(ErrorCode::io, "cannot be read");
    }
  } file;
  RunningSum sum(file);
  CHECK_FAILS(sum.finish([](std::uint64_t, std::uint64_t) { return false; }), ErrorCode::cancelled,
              "after 3 of 3 bytes");
  file.waits = false;
  CHECK_FAILS(sum.finish(), ErrorCode::io, "cannot be read");
}

TEST_CASE_FIXTURE(FetchingFixture, "A fetch sums no byte that may come once more") {
  IntoText into(text, 2);
  const ReadText file(text);
  RunningSum sum(file);
  const auto storage = std::as_bytes(std::span(store.files["text"])).subspan(60, 20);
  begin(into, {{{60, 20}, zip::crc32(storage), "0"}}, &sum);
  store.damage_at(65, 1);
  store.before_next = [&] {
    if (store.asked.size() == 10) CHECK(file.is_read_until(60));
  };
  REQUIRE_OK(run());
  CHECK(store.asked_offsets().size() == 12);
  CHECK(sum.finish() == sha256_of(store.files["text"]));
}

TEST_CASE_FIXTURE(FetchingFixture, "A fetch sums what was there before it, too") {
  IntoText into(text, 2);
  text.replace(0, 30, store.files["text"], 0, 30);
  const ReadText file(text);
  RunningSum sum(file);
  fetching.emplace(*source, into, FetchPlan(100, set_of({{0, 30}}), 10), StorageSums({}), 100,
                   &sum);
  fetching->add_unsummed({0, 30});
  CHECK(file.is_read_until(30));
  REQUIRE_OK(run());
  CHECK(sum.finish() == sha256_of(store.files["text"]));
}
