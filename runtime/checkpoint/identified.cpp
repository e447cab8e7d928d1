#include "runtime/checkpoint/identified.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/formats.hpp"

namespace weightmap {
namespace {

// Asks for parts in pieces, several of which can be on their way at a time.
class Parts final : public RangeReader {
 public:
  explicit Parts(std::vector<RangeRequest> parts) : parts_(std::move(parts)) {
    for (const RangeRequest& part : parts_) missing_ += part.into.size();
  }

  std::optional<RangeRequest> next() override {
    if (at_ == parts_.size()) return std::nullopt;
    RangeRequest& part = parts_[at_];
    const RangeRequest piece{part.offset, part.into.first(std::min(part.into.size(), longest))};
    part.offset += piece.into.size();
    part.into = part.into.subspan(piece.into.size());
    if (part.into.empty()) ++at_;
    return piece;
  }
  Result<void> arrived(const RangeRequest& request) override {
    missing_ -= request.into.size();
    return {};
  }
  bool goes_on(std::uint64_t) override { return true; }

  bool have_arrived() const noexcept { return missing_ == 0; }

 private:
  static constexpr std::size_t longest = std::size_t{16} << 20;

  std::vector<RangeRequest> parts_;
  std::size_t at_ = 0;
  std::uint64_t missing_ = 0;
};

}  // namespace

tl::unexpected<Error> about_source(const RangeSource& source, Error error) {
  return about_file(std::move(error), source.name());
}

Result<void> read_parts(RangeSource& source, std::vector<RangeRequest> parts) {
  Parts reader(std::move(parts));
  TRY(source.read(reader));
  if (reader.have_arrived()) return {};
  return failure(ErrorCode::io, "its source ended a read before all bytes had arrived");
}

FirstReads first_reads(const std::string& name, bool is_sibling) {
  FirstReads first{std::size_t{1} << 20, std::size_t{640} << 10};
  if (may_begin_with_metadata(name)) first.tail = 0;
  return is_sibling ? FirstReads{first.head / 4, first.tail / 4} : first;
}

Result<Identified> identify(RangeSource& source, FirstReads first, Ends ends) {
  const std::size_t later = ends == Ends::in_turn ? std::exchange(first.tail, 0) : 0;
  Identified known{{}, std::vector<std::byte>(first.head), std::vector<std::byte>(first.tail)};
  Result<RemoteVersion> version = source.identify(known.head, known.tail);
  if (!version) return about_source(source, std::move(version.error()));
  known.version = std::move(*version);
  const std::uint64_t size = known.version.size;
  known.head.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size, first.head)));
  const auto unused = first.tail - std::min<std::uint64_t>(size, first.tail);
  known.tail.erase(known.tail.begin(), known.tail.begin() + static_cast<std::ptrdiff_t>(unused));
  if (later == 0) return known;
  const std::uint64_t begin =
      std::max<std::uint64_t>(known.head.size(), size - std::min<std::uint64_t>(size, later));
  known.tail.resize(static_cast<std::size_t>(size - begin));
  if (known.tail.empty()) return known;
  if (Result<void> read = read_parts(source, {{begin, known.tail}}); !read)
    return about_source(source, std::move(read.error()));
  return known;
}

Result<void> check_version(RangeSource& source, const RemoteVersion& version,
                           const std::string& name) {
  if (version.id.empty()) {  // reads are of this version, which may be an old one if it has an id
    std::array<std::byte, 1> byte;
    return read_parts(source, {{0, byte}});
  }
  TRY_ASSIGN(const std::unique_ptr<RangeSource> again, source.sibling(name));
  TRY_ASSIGN(const RemoteVersion now, again->identify({}, {}));
  if (now == version) return {};
  return failure(ErrorCode::io, "changed: the file was version " + version.id + ", and is " +
                                    (now.id.empty() ? "another one" : now.id) + " now");
}

}  // namespace weightmap
