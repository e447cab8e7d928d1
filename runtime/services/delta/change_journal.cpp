#include "runtime/services/delta/change_journal.hpp"

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

// The file: this text, what is applied to what, as text and filled up with zeros; then the numbers,
// and the old bytes of a window.
constexpr std::string_view journal_magic = "weightmap in place 1\n";
constexpr std::size_t chain_at = 32;
constexpr std::size_t chain_bytes = 64;
constexpr std::size_t numbers_at = chain_at + chain_bytes;
constexpr std::size_t numbers_bytes = 24;  // tensor, offset, bytes of the window that was begun
constexpr std::size_t window_at = 128;
constexpr const char* journal_name = ".weightmap-in-place";

using Numbers = std::array<std::byte, numbers_bytes>;

Numbers numbers_of(const ChangeJournal::Position& position, std::uint64_t begun) {
  Numbers numbers;
  bytes::store_le(numbers.data(), position.tensor);
  bytes::store_le(numbers.data() + 8, position.offset);
  bytes::store_le(numbers.data() + 16, begun);
  return numbers;
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Result<std::optional<ChangeJournal>> ChangeJournal::open(const fs::path& folder,
                                                         const std::string& chain) {
  const fs::path path = folder / journal_name;
  if (!is_in(folder)) return std::nullopt;
  TRY_ASSIGN(os::File file, about_file(os::File::open(path, true), path));
  const auto refuse = [&path](ErrorCode code, const char* why) {
    return about_file(Error{code, why}, path);
  };
  std::array<std::byte, window_at> head;
  if (file.size() < head.size()) return refuse(ErrorCode::corrupt, "is no journal of a change");
  TRY(about_file(file.read(0, head), path));
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(journal_magic))
    return refuse(ErrorCode::corrupt, "is no journal of a change");
  std::string found(text.substr(chain_at, chain_bytes));
  found.resize(std::min(found.size(), found.find('\0')));
  if (found != chain)
    return refuse(
        ErrorCode::invalid_argument,
        "a change of this model in place by other deltas was not ended; apply those first");
  ChangeJournal journal(path, std::move(file));
  journal.position_ = {bytes::load_le<std::uint64_t>(head.data() + numbers_at),
                       bytes::load_le<std::uint64_t>(head.data() + numbers_at + 8)};
  const auto begun = bytes::load_le<std::uint64_t>(head.data() + numbers_at + 16);
  if (begun == 0) return journal;
  if (begun > window_bytes) return refuse(ErrorCode::corrupt, "is no journal of a change");
  journal.begun_ = Begun{journal.position_, std::vector<std::byte>(begun)};
  TRY(about_file(journal.file_.read(window_at, journal.begun_->old_bytes), path));
  return journal;
}

bool ChangeJournal::is_in(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / journal_name, unknown);
}

Result<ChangeJournal> ChangeJournal::create(const fs::path& folder, const std::string& chain) {
  const fs::path path = folder / journal_name;
  std::string text(journal_magic);
  text.resize(chain_at);
  text += chain;
  text.resize(window_at);  // the numbers are zeros
  TRY_ASSIGN(NewFile made, NewFile::create(path, {.durable = false}));
  TRY(made.write(bytes_of_text(text)));
  TRY(made.commit());
  TRY_ASSIGN(os::File file, about_file(os::File::open(path, true), path));
  return ChangeJournal(path, std::move(file));
}

Result<void> ChangeJournal::begin(std::span<const std::byte> old_bytes) {
  TRY(about_file(os::write_at(file_.descriptor(), window_at, old_bytes), path_));
  return about_file(
      os::write_at(file_.descriptor(), numbers_at, numbers_of(position_, old_bytes.size())), path_);
}

Result<void> ChangeJournal::end(Position next) {
  position_ = next;
  return about_file(os::write_at(file_.descriptor(), numbers_at, numbers_of(next, 0)), path_);
}

Result<void> ChangeJournal::remove() {
  std::error_code failed;
  fs::remove(path_, failed);
  if (failed)
    return about_file(Error{ErrorCode::io, "cannot remove it: " + failed.message()}, path_);
  return {};
}

}  // namespace weightmap::delta
