#include "remote/http_source.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "remote/list_folder.hpp"
#include "remote/whole_get.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// Their values are secrets, so a message has the number only, or the name of one of ours.
Result<void> check_headers(const std::vector<std::string>& headers) {
  static constexpr std::array<std::string_view, 4> ours = {"range", "if-range", "if-match",
                                                           "accept-encoding"};
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const std::string_view header = headers[i];
    const std::size_t colon = header.find(':');
    if (colon == 0 || colon == header.npos || std::any_of(header.begin(), header.end(), [](char c) {
          return static_cast<unsigned char>(c) < 0x20 && c != '\t';
        }))
      return failure(ErrorCode::invalid_argument,
                     "header " + std::to_string(i) + " is not \"Name: value\"");
    const std::string name = lower(headers[i].substr(0, colon));
    if (std::find(ours.begin(), ours.end(), name) != ours.end())
      return failure(ErrorCode::invalid_argument, "the header " + name + " is the source's own");
  }
  return {};
}

// The ranges of a RangeReader.
class ReaderFeed final : public RangeFeed {
 public:
  ReaderFeed(RangeReader& reader, std::uint64_t size) : reader_(reader), size_(size) {}

  Result<std::optional<Asked>> next() override {
    const std::optional<RangeRequest> request = reader_.next();
    if (!request) return std::nullopt;
    const std::uint64_t length = request->into.size();
    if (!bytes::contains(size_, request->offset, length))
      return failure(ErrorCode::invalid_argument, "a range is not within the file",
                     request->offset);
    return Asked{{request->offset, length}, request->into};
  }
  Result<void> finished(const Finished& finished) override {
    return reader_.arrived({finished.asked.ask.first, finished.asked.into});
  }
  void began(const Asked& asked, std::uint64_t bytes) override {
    reader_.began({asked.ask.first, asked.into}, static_cast<std::size_t>(bytes));
  }
  bool goes_on(std::uint64_t received) override { return reader_.goes_on(received); }

 private:
  RangeReader& reader_;
  const std::uint64_t size_;
};

// One range.
class OneRange final : public RangeFeed {
 public:
  explicit OneRange(const Asked& asked) : asked_(asked) {}
  Result<std::optional<Asked>> next() override { return std::exchange(asked_, std::nullopt); }
  Result<void> finished(const Finished&) override { return {}; }
  bool goes_on(std::uint64_t) override { return true; }

 private:
  std::optional<Asked> asked_;
};

}  // namespace

// The first and the last bytes of a file of unknown size, asked for at the same time.
struct HttpSource::Ends final : RangeFeed {
  Ends(std::span<std::byte> first, std::span<std::byte> last) {
    asked.push_back({{.length = first.size()}, first});
    if (!last.empty()) asked.push_back({{.length = last.size(), .from_end = true}, last});
  }

  Result<std::optional<Asked>> next() override {
    if (begun == asked.size()) return std::nullopt;
    return asked[begun++];
  }
  Result<void> finished(const Finished& finished) override {
    // What is left of it begins or ends as what was asked for.
    const bool is_head = finished.asked.into.data() == asked[0].into.data();
    (is_head ? head : tail) = finished;
    return {};
  }
  bool goes_on(std::uint64_t) override { return true; }

  bool agree() const {
    if (!tail || tail->outcome == Outcome::no_suffix) return true;
    return head->found->version == tail->found->version &&
           head->found->last_modified == tail->found->last_modified;
  }

  std::vector<Asked> asked;
  std::size_t begun = 0;
  std::optional<Finished> head;
  std::optional<Finished> tail;
};

Result<std::unique_ptr<RangeSource>> HttpSource::open(std::string given, Url url,
                                                      const RemoteOptions& options, Pool pool) {
  TRY(check_headers(options.headers));
  Place store(std::move(given), url, options.headers, options.signer, std::nullopt);
  return std::unique_ptr<RangeSource>(
      new HttpSource(url.name(), url.identity(), url, std::move(store), options, std::move(pool)));
}

Result<std::unique_ptr<RangeSource>> HttpSource::open(std::string given, S3Object object,
                                                      const RemoteOptions& options, Pool pool) {
  TRY(check_headers(options.headers));
  TRY_ASSIGN(S3Access access, S3Access::from_environment());
  TRY_ASSIGN(Url url, access.url_of(object));
  if (!options.signer && !access.key_id.empty() && !can_sign())
    return failure(ErrorCode::unsupported,
                   "signing for S3 needs libcurl 7.87 or newer; give a presigned URL or a signer");
  std::string identity = url.identity();
  std::optional<S3Access> signs;
  if (!options.signer) signs = std::move(access);
  Place store(std::move(given), std::move(url), options.headers, options.signer, std::move(signs));
  std::string name = object.name();
  return std::unique_ptr<RangeSource>(new HttpSource(std::move(name), std::move(identity),
                                                     std::move(object), std::move(store), options,
                                                     std::move(pool)));
}

HttpSource::HttpSource(std::string name, std::string identity, Location location, Place store,
                       const RemoteOptions& options, Pool pool)
    : name_(std::move(name)),
      identity_(std::move(identity)),
      location_(std::move(location)),
      options_(options),
      pool_(std::move(pool)),
      store_(std::move(store)) {}

Result<RemoteVersion> HttpSource::identify(std::span<std::byte> head, std::span<std::byte> tail) {
  std::array<std::byte, 1> scratch;  // the version comes with a byte at least
  auto pinned = pin(head.empty() ? std::span(scratch) : head, tail);
  if (!pinned) return passed_on(named(std::move(pinned).error()));
  if (const RemoteVersion& found = pinned->version;
      !options_.unproven && found.tag.empty() && found.id.empty() && pinned->last_modified.empty())
    return passed_on(named({.code = ErrorCode::unsupported,
                            .message = "the server names no version of the file, neither by an "
                                       "ETag nor by a date, so what comes may be of two versions; "
                                       "--unproven (unproven=True in Python) takes it all the "
                                       "same"}));
  pinned_ = *std::move(pinned);
  return pinned_->version;
}

Result<Pinned> HttpSource::pin(std::span<std::byte> head, std::span<std::byte> tail) {
  constexpr int tries = 2;
  for (int i = 0; i < tries; ++i) {
    Ends ends(head, tail);
    TRY(run(ends, nullptr));
    if (!ends.agree()) continue;
    const Pinned& found = *ends.head->found;
    if (ends.tail && ends.tail->outcome == Outcome::no_suffix) TRY(read_end(tail, found));
    return found;
  }
  return failure(ErrorCode::io,
                 "changed: the file was replaced more than once while its version "
                 "was asked for");
}

Result<void> HttpSource::read_end(std::span<std::byte> tail, const Pinned& pinned) {
  const ByteRange range = Ask{.length = tail.size(), .from_end = true}.within(pinned.version.size);
  OneRange end({{range.offset, range.length}, tail.last(range.length)});
  return run(end, &pinned);
}

Result<void> HttpSource::read(RangeReader& reader) {
  if (!pinned_) return failure(ErrorCode::invalid_argument, "read() comes after identify()");
  ReaderFeed feed(reader, pinned_->version.size);
  auto done = run(feed, &*pinned_);
  if (!done) return passed_on(named(std::move(done).error()));
  return {};
}

Result<void> HttpSource::run(RangeFeed& feed, const Pinned* pinned) {
  const TransferPool::Use transfers(*pool_);
  RangeRun run(transfers.get(), store_, pinned,
               {options_.connections, options_.retries, options_.deadline, options_.until,
                options_.stall, options_.goes_on},
               counts_);
  Result<void> done = run.run(feed);
  has_no_ranges_ = run.has_met_no_ranges();
  return done;
}

namespace {

// One answer is of one version, whether the server names it or not.
class WholeBody final : public Body {
 public:
  WholeBody(WholeReader& reader, std::optional<Pinned>& pinned)
      : reader_(reader), pinned_(pinned) {}
  Result<void> begins(const Answer& answer) override {
    TRY(check_body(answer));
    const std::optional<std::uint64_t> size = bytes::number(answer.content_length);
    if (!size)
      return failure(ErrorCode::unsupported, "the server does not say how long the file is");
    pinned_ = Pinned{.version = {.size = *size, .tag = answer.etag}};
    return reader_.begins(pinned_->version);
  }
  Result<void> take(std::span<const std::byte> bytes) override { return reader_.take(bytes); }

 private:
  WholeReader& reader_;
  std::optional<Pinned>& pinned_;
};

}  // namespace

Result<void> HttpSource::read_whole(WholeReader& reader) {
  WholeBody body(reader, pinned_);
  Result<Answer> answer = get_whole(store_, options_, body, counts_);
  if (!answer) return passed_on(named(std::move(answer).error()));
  if (answer->status == 200) return {};
  return passed_on(named({.code = answer->status < 500 ? ErrorCode::not_found : ErrorCode::io,
                          .message = "the server answers HTTP " + std::to_string(answer->status)}));
}

// Other stores than S3 have no such header. Of a file that was replaced meanwhile nothing is said.
Result<StoreSum> HttpSource::store_sum() {
  if (!std::holds_alternative<S3Object>(location_) || !pinned_) return StoreSum{};
  Result<Answer> answer = get_sum(store_, *pinned_, options_, counts_);
  if (!answer) return passed_on(named(std::move(answer).error()));
  if (answer->status != 200 || answer->etag != pinned_->version.tag) return StoreSum{};
  return parse_checksum(answer->checksum_sha256, answer->checksum_type);
}

// A signature in the URL, and a signer's, are for one file.
Result<std::optional<Listing>> HttpSource::list() {
  if (options_.signer) return std::nullopt;
  const auto* const object = std::get_if<S3Object>(&location_);
  Result<std::optional<Listing>> listed =
      object != nullptr ? list_s3_folder(*object, options_, counts_)
                        : list_web_folder(std::get<Url>(location_), options_, counts_);
  if (!listed) return passed_on(named(std::move(listed).error()));
  return listed;
}

Result<std::unique_ptr<RangeSource>> HttpSource::sibling(const std::string& relative) const {
  if (const auto* object = std::get_if<S3Object>(&location_)) {
    TRY_ASSIGN(S3Object other, object->sibling(relative));
    return open("s3://" + other.bucket + "/" + other.key, other, options_, pool_);
  }
  TRY_ASSIGN(Url other, std::get<Url>(location_).sibling(relative));
  return open(other.text(), other, options_, pool_);
}

Error HttpSource::named(Error error) const {
  if (error.file.empty()) error.file = name_;
  return error;
}

}  // namespace weightmap::remote
