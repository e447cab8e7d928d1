#include "runtime/services/fetch/part_file.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/fetch/journal.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap {
namespace {

// What may be lost of a fetch that is killed while its disk is slower than its line: a sixteenth of
// the file, as far as that is neither too little nor too much, or a second. Otherwise less than
// `least_worth` and than what comes in a second, beside what is on its way.
constexpr std::uint64_t least_unrecorded = std::uint64_t{8} << 20;
constexpr std::uint64_t most_unrecorded = std::uint64_t{256} << 20;
constexpr std::chrono::seconds longest_unrecorded{1};
constexpr std::size_t longest_journal = std::size_t{256} << 20;

Result<std::string> read_text(int descriptor) {
  const Result<os::File> file = os::File::from_descriptor(descriptor);
  if (!file || file->size() > longest_journal) return std::string();  // empty, or no journal
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  TRY(file->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool has_size(int descriptor, std::uint64_t size) {
  const Result<os::File> file = os::File::from_descriptor(descriptor);
  return file && file->size() == size;
}

// Nothing else than a file gives way to one.
Result<void> check_place(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::symlink_status(path, none);
  if (!exists(there) || is_regular_file(there) || is_symlink(there)) return {};
  return failure(
      ErrorCode::invalid_argument,
      "is there already and is no regular file; move it away, or fetch to another place");
}

}  // namespace

Result<void> check_room(const std::filesystem::path& folder, std::uint64_t size) {
  std::error_code unknown;
  const std::uint64_t room = std::filesystem::space(folder, unknown).available;
  if (unknown || size <= room) return {};
  return failure(ErrorCode::io, "takes " + std::to_string(size) + " bytes, and its disk has " +
                                    std::to_string(room) + " left");
}

Result<void> make_folder_of(const std::filesystem::path& file) {
  std::error_code failed;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failed);
  if (!failed) return {};
  return about_file({ErrorCode::io, "cannot make its folder: " + failed.message()}, file);
}

Result<PartFile> PartFile::open(const std::filesystem::path& path, const std::string& version,
                                std::uint64_t size) {
  PartFile part(path.has_parent_path() ? path.parent_path() : ".", path.filename());
  if (part.name_.empty()) return failure(ErrorCode::invalid_argument, "is not the name of a file");
  TRY(check_place(path));
  TRY_ASSIGN(part.directory_, os::open_directory(part.folder_));
  TRY(part.open_locked());
  // Without a name of the version, what is there may be of another one.
  TRY(part.begin(version, size));
  TRY_ASSIGN(part.file_, os::File::from_descriptor(part.part_.get()));
  part.writer_ = std::make_unique<os::DirectWriter>(part.part_.get());
  return part;
}

void PartFile::remove_rests(const std::filesystem::path& path) {
  PartFile part(path.has_parent_path() ? path.parent_path() : ".", path.filename());
  Result<os::UniqueFd> folder = os::open_directory(part.folder_);
  if (!folder) return;
  part.directory_ = std::move(*folder);
  const auto rests = os::names_in(part.directory_.get(), part.part_name());
  if (rests && !rests->empty() && part.open_locked()) part.remove_files();
}

// The fetch that had the lock may have given the file its final name meanwhile. Where the file
// system has no locks, there is none. What a hard link shares with another file is not written to.
Result<void> PartFile::open_locked() {
  bool is_new = false;
  for (;;) {
    TRY_ASSIGN(part_, os::open_or_create(directory_.get(), part_name()));
    if (!os::lock_open_file(part_.get()) && (errno == EAGAIN || errno == EACCES))
      return failure(ErrorCode::io,
                     "is being fetched by another process or thread, which has locked " +
                         bytes::quote(part_name()));
    if (!os::has_name(directory_.get(), part_name(), part_.get())) continue;
    if (is_new || !os::has_other_names(part_.get())) return {};
    TRY(os::remove_name(directory_.get(), part_name()));
    is_new = true;
  }
}

Result<void> PartFile::begin(const std::string& first, std::uint64_t size) {
  TRY_ASSIGN(journal_, os::open_or_create(directory_.get(), journal_name()));
  if (os::has_other_names(journal_.get())) {
    TRY(os::remove_name(directory_.get(), journal_name()));
    TRY_ASSIGN(journal_, os::open_or_create(directory_.get(), journal_name()));
  }
  TRY_ASSIGN(const std::string journal, read_text(journal_.get()));
  if (!first.empty() && has_size(part_.get(), size)) present_ = read_journal(journal, first, size);
  if (present_.ranges().empty()) {
    Result<void> begun = begin_again(first, size);
    if (!begun) remove_files();
    return begun;
  }
  // Without the line that its writer could not finish.
  const std::size_t whole = journal.rfind('\n') + 1;
  TRY(os::resize(journal_.get(), whole));
  journal_bytes_ = whole;
  return os::reserve_space(part_.get(), 0, size);
}

Result<void> PartFile::begin_again(const std::string& first, std::uint64_t size) {
  TRY(os::resize(journal_.get(), 0));
  TRY(os::resize(part_.get(), 0));
  TRY(check_room(folder_, size));
  TRY(os::resize(part_.get(), size));
  TRY(os::reserve_space(part_.get(), 0, size));
  journal_bytes_ = 0;
  return append_to_journal(first);
}

void PartFile::remove_files() noexcept {
  static_cast<void>(os::remove_name(directory_.get(), journal_name()));
  static_cast<void>(os::remove_name(directory_.get(), part_name()));
}

Result<void> PartFile::append_to_journal(const std::string& lines) {
  TRY(os::write_at(journal_.get(), journal_bytes_, std::as_bytes(std::span(lines))));
  journal_bytes_ += lines.size();
  return {};
}

Result<void> PartFile::write(std::uint64_t offset, std::span<const std::byte> content) {
  TRY(writer_->write(offset, content));
  written_.add({offset, content.size()});
  written_bytes_ += content.size();
  const std::uint64_t most = std::clamp(file_->size() / 16, least_unrecorded, most_unrecorded);
  return written_bytes_ >= most || is_late() ? sync() : Result<void>();
}

bool PartFile::is_late() const noexcept {
  return written_bytes_ != 0 && std::chrono::steady_clock::now() - synced_ > longest_unrecorded;
}

// After a failure the system may have dropped what was written, and report success the next time.
Result<void> PartFile::sync() {
  if (!sync_failure_)
    if (Result<void> synced = os::sync(part_.get()); !synced)
      sync_failure_ = std::move(synced.error());
  if (sync_failure_) return tl::unexpected<Error>(*sync_failure_);
  const std::vector<ByteRange> recorded = std::exchange(written_, {}).ranges();
  TRY(append_to_journal(lines_of(recorded)));
  for (const ByteRange& range : recorded) present_.add(range);
  written_bytes_ = 0;
  synced_ = std::chrono::steady_clock::now();
  return {};
}

Result<void> PartFile::publish(bool replaces) {
  if (replaces) TRY(os::take_permissions_of(directory_.get(), name_, part_.get()));
  TRY(sync());
  TRY(replaces ? os::rename_in(directory_.get(), part_name(), name_)
               : os::rename_to_free(directory_.get(), part_name(), name_));
  Result<void> done = os::remove_name(directory_.get(), journal_name());
  if (done) done = os::sync_directory(directory_.get());
  if (!done) done.error().message.insert(0, "is in place, but: ");
  return done;
}

}  // namespace weightmap
