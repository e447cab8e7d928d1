#include "python/src/url_source.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap::python {
namespace {

// Reads are cut into such pieces, which are on their way together.
constexpr std::size_t piece_bytes = std::size_t{8} << 20;

class IntoMemory final : public RangeReader {
 public:
  IntoMemory(std::uint64_t offset, std::span<std::byte> into, const Progress& progress)
      : offset_(offset), left_(into), all_(into.size()), progress_(progress) {}

  std::optional<RangeRequest> next() override {
    if (left_.empty()) return std::nullopt;
    const RangeRequest piece{offset_, left_.first(std::min(left_.size(), piece_bytes))};
    offset_ += piece.into.size();
    left_ = left_.subspan(piece.into.size());
    return piece;
  }
  Result<void> arrived(const RangeRequest& piece) override {
    done_ += piece.into.size();
    return {};
  }
  bool goes_on(std::uint64_t) override { return progress_(done_, all_); }

 private:
  std::uint64_t offset_;  // of what is left
  std::span<std::byte> left_;
  std::uint64_t done_ = 0;
  const std::uint64_t all_;
  const Progress& progress_;
};

class PinnedSource final : public RangeSource {
 public:
  PinnedSource(std::unique_ptr<RangeSource> source, RemoteVersion version) noexcept
      : source_(std::move(source)), version_(std::move(version)) {}

  const std::string& name() const noexcept override { return source_->name(); }
  std::string identity() const override { return source_->identity(); }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override {
    TRY_ASSIGN(RemoteVersion now, source_->identify(head, tail));
    if (now == version_) return now;
    return tl::unexpected<Error>({ErrorCode::io, "changed since its size or tag was asked for",
                                  Error::no_offset, source_->name()});
  }
  Result<void> read(RangeReader& reader) override { return source_->read(reader); }
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override {
    return source_->sibling(relative);
  }
  RangeCounts counts() const noexcept override { return source_->counts(); }
  bool tells_began() const noexcept override { return source_->tells_began(); }
  Result<StoreSum> store_sum() override { return source_->store_sum(); }
  Result<std::optional<Listing>> list() override { return source_->list(); }

 private:
  std::unique_ptr<RangeSource> source_;
  RemoteVersion version_;
};

}  // namespace

Result<std::unique_ptr<UrlSource>> UrlSource::make(Open open) {
  const auto asker = std::make_shared<const Progress*>(nullptr);
  const auto goes_on = [asker] { return *asker == nullptr || (**asker)(0, 0); };
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, open(goes_on, false));
  return std::unique_ptr<UrlSource>(new UrlSource(std::move(open), asker, std::move(source)));
}

Result<RemoteVersion> UrlSource::version(const Progress& progress) {
  const std::scoped_lock use(use_);
  *asker_ = &progress;
  Result<RemoteVersion> found = version_locked();
  *asker_ = nullptr;
  return found;
}

Result<RemoteVersion> UrlSource::version_locked() {
  if (!version_) {  // which only the owner of use_ sets
    TRY_ASSIGN(RemoteVersion found, source_->identify({}, {}));
    const std::scoped_lock lock(mutex_);
    version_ = std::move(found);
  }
  return *version_;
}

Result<void> UrlSource::read(std::uint64_t offset, std::span<std::byte> into,
                             const Progress& progress) {
  TRY_ASSIGN(const RemoteVersion found, version(progress));
  if (offset > found.size || into.size() > found.size - offset)
    return tl::unexpected<Error>({ErrorCode::invalid_argument,
                                  "has " + std::to_string(found.size) + " bytes, and not the " +
                                      std::to_string(into.size()) + " from byte " +
                                      std::to_string(offset) + " on",
                                  Error::no_offset, name()});
  IntoMemory reader(offset, into, progress);
  const std::scoped_lock use(use_);
  return source_->read(reader);
}

Result<std::unique_ptr<RangeSource>> UrlSource::open(GoesOn goes_on) const {
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, open_(std::move(goes_on), true));
  const std::scoped_lock lock(mutex_);
  if (!version_) return source;
  return std::make_unique<PinnedSource>(std::move(source), *version_);
}

Result<std::unique_ptr<UrlSource>> UrlSource::sibling(const std::string& relative) const {
  return make([open = open_, relative](GoesOn goes_on,
                                       bool is_one_call) -> Result<std::unique_ptr<RangeSource>> {
    TRY_ASSIGN(const std::unique_ptr<RangeSource> beside, open(std::move(goes_on), is_one_call));
    return beside->sibling(relative);
  });
}

}  // namespace weightmap::python
