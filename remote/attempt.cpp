#include "remote/attempt.hpp"

#include <algorithm>

namespace weightmap::remote {

// The body of a refusal is read to its end, so that the connection can be used again, if it is
// short.
constexpr std::size_t longest_refusal = 16 * 1024;

Attempt::Attempt(Transfers& transfers, Piece& piece, Place& place, const Pinned* pin, Tally& tally,
                 bool fresh, std::chrono::milliseconds connect_timeout)
    : Transfer(transfers, place.request(piece.rest(), pin), fresh, connect_timeout),
      piece_(piece),
      tally_(tally),
      generation_(place.generation()),
      ask_(piece.rest()),
      pin_(pin),
      began_(Clock::now()),
      at_(piece.have) {
  ++tally_.counts.requests;
}

const Judgement& Attempt::judgement() {
  if (judgement_) return *judgement_;
  judgement_ = judge(answer(), ask_, pin_);
  if (judgement_->outcome == Outcome::body && pin_ == nullptr) {
    const std::uint64_t length = judgement_->range.length;
    piece_.found = judgement_->found;
    piece_.into = ask_.from_end ? piece_.into.last(length) : piece_.into.first(length);
    piece_.ask = {judgement_->range.offset, length};
  }
  return *judgement_;
}

bool Attempt::is_complete() const noexcept {
  return judgement_ && judgement_->outcome == Outcome::body && at_ == piece_.into.size() &&
         !is_overlong_;
}

bool Attempt::take(std::span<const std::byte> bytes) {
  if (judgement().outcome != Outcome::body) return skip(bytes.size());
  is_overlong_ = bytes.size() > piece_.into.size() - at_;
  if (is_overlong_) return false;
  at_ += bytes.size();
  const std::uint64_t added = std::max(piece_.have, at_) - piece_.have;
  // Others read what was there before.
  const auto news = bytes.last(static_cast<std::size_t>(added));
  std::ranges::copy(news, piece_.into.subspan(piece_.have, added).begin());
  piece_.have += added;
  tally_.received += bytes.size();
  tally_.counts.bytes += bytes.size();
  tally_.counts.bytes_twice += bytes.size() - added;
  return true;
}

bool Attempt::skip(std::size_t bytes) {
  skipped_ += bytes;
  return answer().status != 200 && skipped_ <= longest_refusal;
}

}  // namespace weightmap::remote
