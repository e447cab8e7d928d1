// A range on its way, and the requests for it:
//
//   Due ──begin──▶ Asked ──slow──▶ Hedged      one request, then two, on connections of their own
//    ▲               │  ▲             │
//    │   it failed,  │  └─ one failed ┘
//    └── redirected, ┘                │
//        or refused  │ all bytes      │ all bytes, by one of them
//                    └──▶ finished ◀──┘
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "remote/judgement.hpp"
#include "remote/place.hpp"
#include "remote/transfer.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::remote {

struct Piece;

struct Tally {
  RangeCounts& counts;         // of the source
  std::uint64_t received = 0;  // in this run
};

// One request for the bytes of a piece that are missing. There may be two: then each byte is
// written by the one that brings it first, and the piece is there once one of them has come to its
// end.
class Attempt final : public Transfer {
 public:
  // All must outlive it. `pin`: what the answer must be of; nullptr if no version is known.
  Attempt(Transfers& transfers, Piece& piece, Place& place, const Pinned* pin, Tally& tally,
          bool fresh, std::chrono::milliseconds connect_timeout);

  Piece& piece() const noexcept { return piece_; }
  unsigned generation() const noexcept { return generation_; }
  Clock::time_point began() const noexcept { return began_; }
  std::uint64_t asked_bytes() const noexcept { return ask_.length; }

  bool is_judged() const noexcept { return judgement_.has_value(); }
  // Once the header is complete. Made the first time: then a piece of unknown place gets its own.
  const Judgement& judgement();
  // All bytes are there, and nothing but them was sent.
  bool is_complete() const noexcept;
  bool is_overlong() const noexcept { return is_overlong_; }

 private:
  bool take(std::span<const std::byte> bytes) override;
  bool skip(std::size_t bytes);

  Piece& piece_;
  Tally& tally_;
  const unsigned generation_;
  const Ask ask_;
  const Pinned* pin_;
  const Clock::time_point began_;
  std::optional<Judgement> judgement_;
  std::uint64_t at_;  // in the piece: where the next byte belongs; never beyond Piece::have
  std::size_t skipped_ = 0;
  bool is_overlong_ = false;
};

// Waits to be asked for.
struct Due {
  Clock::time_point when = {};
};
struct AskedFor {
  std::unique_ptr<Attempt> attempt;
};
// Only once in the life of a piece.
struct Hedged {
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<Attempt> hedge;
};

struct Piece {
  Ask ask;
  std::span<std::byte> into;         // as long as `ask`, which is shortened to what the file has
  std::optional<Pinned> found = {};  // the answer's version, where none was known before
  std::uint64_t have = 0;            // the first bytes, which are there

  unsigned failures = 0;
  unsigned redirects = 0;  // in a row
  bool was_hedged = false;
  std::variant<Due, AskedFor, Hedged> state = {};

  // The request that was begun first of those on their way; nullptr if there is none.
  Attempt* first() const noexcept {
    if (const auto* const asked = std::get_if<AskedFor>(&state)) return asked->attempt.get();
    const auto* const hedged = std::get_if<Hedged>(&state);
    return hedged != nullptr ? hedged->attempt.get() : nullptr;
  }
  Ask rest() const noexcept { return {ask.first + have, ask.length - have, ask.from_end}; }
};

}  // namespace weightmap::remote
