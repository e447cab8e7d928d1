#include "runtime/services/write/reserved_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/checksum_places.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/archive/own_records.hpp"

namespace weightmap {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

tl::unexpected<Error> nothing_reserved() {
  return failure(ErrorCode::invalid_argument,
                 "has no reserved storages (no record " + std::string(torch::marks_record) + ")");
}

Result<void> check_not_sealed(const std::string& letters) {
  if (letters.back() != torch::mark::sealed) return {};
  return failure(ErrorCode::invalid_argument, "is sealed: all that was reserved is written");
}

std::array<std::byte, 1> letter(char mark) noexcept { return {static_cast<std::byte>(mark)}; }

}  // namespace

Result<std::unique_ptr<ReservedFile>> ReservedFile::open(const std::filesystem::path& path) {
  TRY_ASSIGN(os::File file, os::File::open(path, true));
  std::unique_ptr<ReservedFile> made(new ReservedFile(std::move(file)));
  TRY(made->lock_shared());
  TRY(made->read_records());
  return made;
}

Result<void> ReservedFile::lock_shared() const {
  TRY_ASSIGN(const bool is_ours, lock_.take(os::FileLock::Users::shared));
  if (is_ours) return {};
  return failure(ErrorCode::io, "another process is sealing the file at this moment");
}

Result<void> ReservedFile::join() const {
  if (lock_.is_own()) return {};
  TRY(lock_shared());
  TRY_ASSIGN(const std::string letters, marks());
  return check_not_sealed(letters);
}

Result<void> ReservedFile::read_records() {
  TRY_ASSIGN(directory_, format::read_directory(file_, cache_, Limits{}));
  const zip::Record* const marks = directory_.find(torch::marks_record);
  if (marks == nullptr) return nothing_reserved();
  TRY(torch::check_marks(directory_, *marks));
  TRY_ASSIGN(marks_at_, payload_of(*marks));
  marks_length_ = marks->size;
  return find_storages();
}

Result<void> ReservedFile::find_storages() {
  TRY_ASSIGN(const std::string letters, marks());
  TRY(check_not_sealed(letters));
  for (std::uint64_t i = 0; i + 1 < letters.size(); ++i) {
    if (letters[i] == torch::mark::saved) continue;
    const std::string name = zip::storage_record(std::to_string(i));
    const zip::Record* const record = directory_.find(name);
    if (record == nullptr)
      return failure(ErrorCode::corrupt, "record " + std::string(torch::marks_record) +
                                             " speaks of " + bytes::quote(name) +
                                             ", which is not there");
    TRY_ASSIGN(const std::uint64_t offset, payload_of(*record));
    storages_.push_back({i, offset, record->size});
  }
  return storages_.empty() ? nothing_reserved() : Result<void>{};
}

Result<std::uint64_t> ReservedFile::payload_of(const zip::Record& record) const {
  if (record.method != zip::Method::stored)
    return failure(ErrorCode::unsupported,
                   "record " + bytes::quote(record.full_name()) + " is compressed",
                   record.header_offset);
  return zip::read_local_header(file_, record, directory_.limit_of(record));
}

const ReservedFile::Storage* ReservedFile::find(std::string_view key) const noexcept {
  const std::uint32_t number = bytes::decimal(key);
  const auto at =
      std::lower_bound(storages_.begin(), storages_.end(), number,
                       [](const Storage& s, std::uint64_t value) { return s.number < value; });
  return at == storages_.end() || at->number != number ? nullptr : &*at;
}

Result<std::string> ReservedFile::marks() const {
  std::string letters(static_cast<std::size_t>(marks_length_), '\0');
  TRY(file_.read(marks_at_, std::as_writable_bytes(std::span(letters))));
  return letters;
}

Result<void> ReservedFile::mark_written(const Storage& storage) const {
  TRY(join());
  return write_at(marks_at_ + storage.number, letter(torch::mark::written));
}

Result<void> ReservedFile::sum(const zip::Record& record, std::uint64_t payload,
                               std::uint32_t& crc) {
  std::vector<std::byte> chunk(static_cast<std::size_t>(
      std::min<std::uint64_t>(std::max<std::uint64_t>(record.size, 1), chunk_bytes)));
  std::uint32_t sum = 0;
  for (std::uint64_t done = 0; done < record.size;) {
    const auto part = std::span(chunk).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), record.size - done)));
    TRY(file_.read(payload + done, part));
    sum = zip::crc32(part, sum);
    done += part.size();
  }
  crc = sum;
  return put_checksum(record, payload, sum);
}

Result<void> ReservedFile::put_checksum(const zip::Record& record, std::uint64_t payload,
                                        std::uint32_t crc) {
  std::vector<std::byte> field;
  bytes::ByteSink(field).u32(crc);
  TRY_ASSIGN(const zip::ChecksumPlaces places,
             zip::checksum_places(file_, directory_, record, payload));
  TRY(write_at(places.in_descriptor, field));
  return write_at(places.in_directory, field);
}

Result<void> ReservedFile::write_checksums(const Progress& progress) {
  std::uint64_t all = 0;
  std::uint64_t done = 0;
  for (const Storage& storage : storages_) all += storage.nbytes;
  for (const Storage& storage : storages_) {
    const std::string name = zip::storage_record(std::to_string(storage.number));
    const zip::Record& record = *directory_.find(name);
    const auto index = static_cast<std::size_t>(&record - directory_.records().data());
    TRY(sum(record, storage.offset, checksums_[index]));
    done += storage.nbytes;
    if (progress && !progress(done, all))
      return failure(ErrorCode::cancelled, "the sealing was stopped");
  }
  return {};
}

// Computes the checksum of the status bytes in their sealed state.
Result<void> ReservedFile::write_checksum_of_marks() {
  TRY_ASSIGN(std::string letters, marks());
  letters.back() = torch::mark::sealed;
  return put_checksum(*directory_.find(torch::marks_record), marks_at_,
                      zip::crc32(std::as_bytes(std::span(letters))));
}

// Writes the id as the writer computes it, now that there are checksums. The record of status bytes
// counts with CRC 0, as it did when the file was made.
Result<void> ReservedFile::write_serialization_id() {
  const zip::Record* const record = directory_.find(SerializationId::record);
  if (record == nullptr) return {};
  SerializationId id;
  for (std::size_t i = 0; i < directory_.records().size(); ++i) {
    const zip::Record& other = directory_.records()[i];
    const std::string_view name = directory_.short_name(other);
    if (&other != record) id.add(name, other.size, name == torch::marks_record ? 0 : checksums_[i]);
  }
  const std::string digits = id.digits();
  if (record->size != digits.size()) return {};  // the id of another writer
  TRY_ASSIGN(const std::uint64_t payload, payload_of(*record));
  TRY(write_at(payload, std::as_bytes(std::span(digits))));
  const auto index = static_cast<std::size_t>(record - directory_.records().data());
  return sum(*record, payload, checksums_[index]);
}

Result<void> ReservedFile::sync() {
  Result<void> synced = os::sync(file_.descriptor());
  if (synced) return synced;
  std::string letters(static_cast<std::size_t>(marks_length_), torch::mark::saved);
  for (const Storage& storage : storages_)
    letters[static_cast<std::size_t>(storage.number)] = torch::mark::reserved;
  letters.back() = torch::mark::open;
  const Result<void> withdrawn = write_at(marks_at_, std::as_bytes(std::span(letters)));
  synced.error().message += withdrawn ? "; what was reserved counts as not written again"
                                      : "; what was reserved must be written again";
  return synced;
}

Result<void> ReservedFile::seal(const Progress& progress) {
  TRY(join());
  TRY_ASSIGN(const bool is_alone, lock_.take(os::FileLock::Users::alone));
  if (!is_alone)
    return failure(ErrorCode::io,
                   "others have the file open for filling; they must close it first");
  // Returns to the shared lock in every case, so that others can open the file again.
  struct Shared {
    os::FileLock& lock;
    ~Shared() { static_cast<void>(lock.take(os::FileLock::Users::shared)); }
  } const shared_again{lock_};
  return seal_alone(progress);
}

Result<void> ReservedFile::seal_alone(const Progress& progress) {
  checksums_.clear();
  for (const zip::Record& record : directory_.records()) checksums_.push_back(record.crc32);
  TRY(sync());
  TRY(write_checksums(progress));
  TRY(write_serialization_id());
  TRY(write_checksum_of_marks());
  TRY(sync());
  TRY(write_at(marks_at_ + marks_length_ - 1, letter(torch::mark::sealed)));
  return sync();
}

}  // namespace weightmap
