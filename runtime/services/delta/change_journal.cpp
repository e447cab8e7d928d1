#include "runtime/services/delta/change_journal.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::delta {
namespace {

namespace fs = std::filesystem;

// The file: this text, what is applied to what, as text and filled up with zeros; a state for the
// window that was begun last, one for what was ended last, and the old bytes of that window. A
// state that was written in part only does not have its sum; then the other one is true.
constexpr std::string_view journal_magic = "weightmap in place 1\n";
constexpr std::size_t chain_at = 32;
constexpr std::size_t chain_bytes = 64;
constexpr std::size_t begun_at = chain_at + chain_bytes;
// Tensor, offset, bytes of a window that was begun, and the sum of these and of the old bytes.
constexpr std::size_t state_bytes = 32;
constexpr std::size_t sum_in_state = 24;
constexpr std::size_t ended_at = begun_at + state_bytes;
constexpr std::size_t window_at = ended_at + state_bytes;
constexpr const char* journal_name = ".weightmap-in-place";

using State = std::array<std::byte, state_bytes>;

State state_of(const ChangeJournal::Position& position, std::span<const std::byte> old_bytes) {
  State state;
  bytes::store_le(state.data(), position.tensor);
  bytes::store_le(state.data() + 8, position.offset);
  bytes::store_le(state.data() + 16, std::uint64_t{old_bytes.size()});
  const std::uint64_t of_numbers = XXH3_64bits(state.data(), sum_in_state);
  bytes::store_le(state.data() + sum_in_state,
                  XXH3_64bits_withSeed(old_bytes.data(), old_bytes.size(), of_numbers));
  return state;
}

// Reads what state_of() makes; nullopt: it does not have its sum.
std::optional<ChangeJournal::Begun> read_state(std::span<const std::byte> state,
                                               std::span<const std::byte> window) {
  const auto begun = bytes::load_le<std::uint64_t>(state.data() + 16);
  if (begun > window.size()) return std::nullopt;
  const auto old_bytes = window.first(begun);
  const ChangeJournal::Position position{bytes::load_le<std::uint64_t>(state.data()),
                                         bytes::load_le<std::uint64_t>(state.data() + 8)};
  if (!std::ranges::equal(state, state_of(position, old_bytes))) return std::nullopt;
  return ChangeJournal::Begun{position, {old_bytes.begin(), old_bytes.end()}};
}

std::string head_of(const std::string& chain) {
  std::string head(journal_magic);
  head.resize(chain_at);
  head += chain;
  head.resize(begun_at);
  return head;
}

}  // namespace

Result<std::optional<ChangeJournal>> ChangeJournal::open(const fs::path& folder,
                                                         const std::string& chain) {
  const fs::path path = folder / journal_name;
  if (!is_in(folder)) return std::nullopt;
  const auto refuse = [&path](ErrorCode code, const char* why) {
    return about_file(Error{code, why}, path);
  };
  if (std::error_code unknown; fs::is_symlink(path, unknown))
    return refuse(ErrorCode::corrupt, "is a symbolic link, and no journal of a change");
  TRY_ASSIGN(os::File file, about_file(os::File::open(path, true), path));
  if (file.size() < window_at) return refuse(ErrorCode::corrupt, "is no journal of a change");
  std::vector<std::byte> content(std::min<std::uint64_t>(file.size(), window_at + window_bytes));
  TRY(about_file(file.read(0, content), path));
  const std::string_view text(reinterpret_cast<const char*>(content.data()), begun_at);
  const std::string expected = head_of(chain);
  if (text.substr(0, chain_at) != expected.substr(0, chain_at))
    return refuse(ErrorCode::corrupt, "is no journal of a change");
  if (text != expected)
    return refuse(
        ErrorCode::invalid_argument,
        "a change of this model in place by other deltas was not ended; apply those first");
  const std::span<const std::byte> all(content), window = all.subspan(window_at);
  const auto begun = read_state(all.subspan(begun_at, state_bytes), window);
  const auto ended = read_state(all.subspan(ended_at, state_bytes), {});
  if (!begun && !ended) return refuse(ErrorCode::corrupt, "is a damaged journal of a change");
  ChangeJournal journal(path, std::move(file));
  journal.position_ = ended ? ended->position : begun->position;
  if (begun && begun->position == journal.position_) journal.begun_ = begun;
  return journal;
}

bool ChangeJournal::is_in(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / journal_name, unknown);
}

Result<ChangeJournal> ChangeJournal::create(const fs::path& folder, const std::string& chain) {
  const fs::path path = folder / journal_name;
  const std::string head = head_of(chain);
  TRY_ASSIGN(NewFile made, NewFile::create(path, {.durable = false}));
  TRY(made.write(std::as_bytes(std::span(head))));
  TRY(made.write(State{}));  // none was begun
  TRY(made.write(state_of({}, {})));
  TRY(made.commit());
  TRY_ASSIGN(os::File file, about_file(os::File::open(path, true), path));
  return ChangeJournal(path, std::move(file));
}

Result<void> ChangeJournal::begin(std::span<const std::byte> old_bytes) {
  TRY(about_file(os::write_at(file_.descriptor(), window_at, old_bytes), path_));
  return about_file(os::write_at(file_.descriptor(), begun_at, state_of(position_, old_bytes)),
                    path_);
}

Result<void> ChangeJournal::end(Position next) {
  position_ = next;
  return about_file(os::write_at(file_.descriptor(), ended_at, state_of(next, {})), path_);
}

Result<void> ChangeJournal::remove() {
  std::error_code failed;
  fs::remove(path_, failed);
  if (failed)
    return about_file(Error{ErrorCode::io, "cannot remove it: " + failed.message()}, path_);
  return {};
}

}  // namespace weightmap::delta
