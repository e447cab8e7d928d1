#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory_resource>
#include <utility>

#include "mmap/memory/huge_pages.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/part.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/base/zip/text_records.hpp"
#include "runtime/formats/format/members.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/archive.hpp"

namespace weightmap {
namespace {

using Chunk = std::function<bool(std::span<const std::byte>)>;

constexpr unsigned max_threads = 64;
// A thread for less than this costs more than it gains.
constexpr std::size_t least_of_thread = std::size_t{1} << 20;
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

static_assert(ArchiveReader::min_version == zip::min_version &&
              ArchiveReader::max_version == zip::max_version);

// Returns the first failure in the order of the file.
Result<void> read_in_parts(const bytes::ByteSource& file, std::uint64_t offset,
                           std::span<std::byte> out, unsigned threads) {
  const std::size_t useful = std::max<std::size_t>(1, out.size() / least_of_thread);
  const std::size_t count = std::clamp<std::size_t>(threads, 1, useful);
  const std::size_t part = (out.size() + count - 1) / count;
  return parallel_for(count, count, [&](std::size_t number) {
    const std::size_t begin = std::min(number * part, out.size());
    const std::size_t length = std::min(part, out.size() - begin);
    return file.read(offset + begin, out.subspan(begin, length));
  });
}

}  // namespace

struct ArchiveReader::State {
  State(os::File opened, const std::filesystem::path& opened_path, const Limits& given,
        const ByteRange& range)
      : file(std::move(opened)),
        base(range.offset),
        archive(file, range.offset, range.length),
        path(opened_path),
        limits(given),
        cache(archive, memory) {}

  Result<void> read_directory();
  const zip::Record* find(std::string_view name) const noexcept;
  Result<const zip::Record*> get(std::string_view name) const;
  Result<std::uint64_t> payload(const zip::Record& record) const;
  Result<void> read(const zip::Record& record, std::span<std::byte> out, unsigned threads) const;
  Result<std::vector<std::byte>> read_whole(const zip::Record& record) const;
  // Calls `chunk` with consecutive parts of the record until it returns false. A stored record
  // needs the memory of one chunk only.
  Result<void> chunks(const zip::Record& record, const Chunk& chunk) const;
  static bool has_crc(const zip::Record& record) noexcept {
    return record.crc32 != 0 || record.size == 0;
  }
  Result<void> check_crc(const zip::Record& record, std::uint32_t found) const;
  Result<bool> verify_crc(const zip::Record& record) const;
  Result<void> copy(const zip::Record& record, const RecordContent::Take& take) const;
  RecordInfo info(const zip::Record& record) const noexcept;

  // Adds the path to an error, and makes its offset one in the file.
  template <class T>
  Result<T> about(Result<T> result) const {
    if (result) return result;
    return about(std::move(result.error()));
  }
  tl::unexpected<Error> about(Error error) const {
    if (error.file_offset != Error::no_offset) error.file_offset += base;
    return about_file(std::move(error), path);
  }

  // The order matters: the directory points into the windows, whose memory comes from `memory`.
  mmap::HugePageResource memory;
  os::File file;
  std::uint64_t base;  // of the archive in the file, of which it may be a member
  bytes::Part archive;
  std::filesystem::path path;
  Limits limits;
  bytes::ReadCache cache;
  zip::Directory directory;
  // Offset of each record once it was requested; 0, which is never a payload's offset, before that.
  std::unique_ptr<std::atomic<std::uint64_t>[]> payloads;
};

Result<void> ArchiveReader::State::read_directory() {
  file.advise_metadata();
  TRY_ASSIGN(directory, format::read_directory(archive, cache, limits));
  payloads = std::make_unique<std::atomic<std::uint64_t>[]>(directory.records().size());
  memory.trim();
  file.advise_mapping();  // whole records are read from here on
  return {};
}

const zip::Record* ArchiveReader::State::find(std::string_view name) const noexcept {
  if (const zip::Record* record = directory.find(name)) return record;
  // A record outside the top folder is listed and found by its whole name.
  const zip::Record* record = directory.find_full(name);
  return record != nullptr && directory.short_name(*record) == name ? record : nullptr;
}

Result<const zip::Record*> ArchiveReader::State::get(std::string_view name) const {
  if (const zip::Record* record = find(name)) return record;
  return failure(ErrorCode::not_found, "there is no record " + bytes::quote(name));
}

Result<std::uint64_t> ArchiveReader::State::payload(const zip::Record& record) const {
  const auto index = static_cast<std::size_t>(&record - directory.records().data());
  if (const std::uint64_t known = payloads[index].load(std::memory_order_relaxed)) return known;
  Result<std::uint64_t> found = zip::read_local_header(archive, record, directory.limit_of(record));
  if (found) payloads[index].store(*found, std::memory_order_relaxed);
  return found;
}

Result<void> ArchiveReader::State::read(const zip::Record& record, std::span<std::byte> out,
                                        unsigned threads) const {
  if (out.size() != record.size)
    return failure(ErrorCode::invalid_argument,
                   "the buffer has " + bytes::counted(out.size(), "byte") + ", record " +
                       bytes::quote(record.full_name()) + " has " + std::to_string(record.size));
  TRY_ASSIGN(const std::uint64_t offset, payload(record));
  if (record.method == zip::Method::stored)
    return read_in_parts(archive, offset, out, std::min(threads, max_threads));
  std::vector<std::byte> stored(record.stored_size);
  TRY(archive.read(offset, stored));
  Result<void> inflated = zip::inflate(stored, out);
  if (inflated) return inflated;
  return failure(inflated.error().code,
                 "record " + bytes::quote(record.full_name()) + ": " + inflated.error().message,
                 offset);
}

Result<std::vector<std::byte>> ArchiveReader::State::read_whole(const zip::Record& record) const {
  const bool deflated = record.method == zip::Method::deflated;
  const std::string what = "record " + bytes::quote(record.full_name()) + " inflates to " +
                           std::to_string(record.size) + " bytes";
  if (deflated && record.size > limits.record_bytes)
    return failure(ErrorCode::limit_exceeded,
                   what + ", the limit is " + std::to_string(limits.record_bytes),
                   record.header_offset);
  if (deflated && record.size > zip::max_inflated_size(record.stored_size))
    return failure(
        ErrorCode::corrupt,
        what + ", which " + std::to_string(record.stored_size) + " compressed bytes cannot become",
        record.header_offset);
  std::vector<std::byte> content(record.size);
  TRY(read(record, content, 1));
  return content;
}

Result<void> ArchiveReader::State::chunks(const zip::Record& record, const Chunk& chunk) const {
  if (record.method != zip::Method::stored) {
    TRY_ASSIGN(const std::vector<std::byte> content, read_whole(record));
    chunk(content);
    return {};
  }
  TRY_ASSIGN(const std::uint64_t offset, payload(record));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(chunk_bytes, record.size));
  for (std::uint64_t at = 0; at < record.size; at += buffer.size()) {
    const std::span<std::byte> piece(buffer.data(),
                                     std::min<std::uint64_t>(buffer.size(), record.size - at));
    TRY(archive.read(offset + at, piece));
    if (!chunk(piece)) return {};
  }
  return {};
}

Result<void> ArchiveReader::State::check_crc(const zip::Record& record, std::uint32_t found) const {
  if (!has_crc(record) || found == record.crc32) return {};
  return failure(
      ErrorCode::corrupt,
      "record " + bytes::quote(record.full_name()) + zip::crc_mismatch(found, record.crc32),
      record.header_offset);
}

Result<bool> ArchiveReader::State::verify_crc(const zip::Record& record) const {
  if (!has_crc(record)) return false;
  std::uint32_t found = 0;
  TRY(chunks(record, [&](std::span<const std::byte> piece) {
    found = zip::crc32(piece, found);
    return true;
  }));
  TRY(check_crc(record, found));
  return true;
}

Result<void> ArchiveReader::State::copy(const zip::Record& record,
                                        const RecordContent::Take& take) const {
  if (record.size == 0) return {};
  std::uint32_t found = 0;
  Result<void> taken;
  TRY(about(chunks(record, [&](std::span<const std::byte> piece) {
    found = zip::crc32(piece, found);
    taken = take(piece);
    return taken.has_value();
  })));
  TRY(taken);
  return about(check_crc(record, found));
}

ArchiveReader::RecordInfo ArchiveReader::State::info(const zip::Record& record) const noexcept {
  return {directory.short_name(record),
          base + record.header_offset,
          record.stored_size,
          record.size,
          record.crc32,
          record.method == zip::Method::deflated};
}

Result<ArchiveReader> ArchiveReader::open(const std::filesystem::path& path,
                                          const OpenOptions& options) {
  Result<os::File> file = os::File::open(path, false);
  const std::optional<format::MemberPath> inside =
      !file && file.error().os_error == ENOTDIR ? format::member_path(path) : std::nullopt;
  if (inside) file = os::File::open(inside->file, false);
  if (!file) return about_file(file.error(), path);
  const Result<ByteRange> archive = inside
                                        ? format::find_member(*file, inside->member, options.limits)
                                        : ByteRange{0, file->size()};
  if (!archive) return about_file(archive.error(), path);
  auto state = std::make_unique<State>(std::move(*file), path, options.limits, *archive);
  if (Result<void> ok = state->read_directory(); !ok) return state->about(ok.error());
  return ArchiveReader(std::move(state));
}

ArchiveReader::ArchiveReader(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
ArchiveReader::ArchiveReader(ArchiveReader&&) noexcept = default;
ArchiveReader& ArchiveReader::operator=(ArchiveReader&&) noexcept = default;
ArchiveReader::~ArchiveReader() = default;

std::string_view ArchiveReader::archive_name() const& noexcept {
  std::string_view folder = state_->directory.top_folder();
  if (!folder.empty()) folder.remove_suffix(1);
  return folder;
}

std::size_t ArchiveReader::record_count() const noexcept {
  return state_->directory.records().size();
}

ArchiveReader::RecordInfo ArchiveReader::record(std::size_t index) const& {
  return state_->info(state_->directory.records()[index]);
}

std::vector<ArchiveReader::RecordInfo> ArchiveReader::records() const& {
  std::vector<RecordInfo> all;
  all.reserve(record_count());
  for (const zip::Record& record : state_->directory.records()) all.push_back(state_->info(record));
  return all;
}

bool ArchiveReader::has(std::string_view name) const { return state_->find(name) != nullptr; }

std::optional<ArchiveReader::RecordInfo> ArchiveReader::find(std::string_view name) const& {
  const zip::Record* record = state_->find(name);
  if (record == nullptr) return std::nullopt;
  return state_->info(*record);
}

Result<std::uint64_t> ArchiveReader::payload_offset(std::string_view name) const {
  return state_->about(state_->get(name).and_then([this](const zip::Record* record) {
    return state_->payload(*record).transform(
        [this](std::uint64_t at) { return state_->base + at; });
  }));
}

Result<void> ArchiveReader::read(std::string_view name, std::span<std::byte> out,
                                 unsigned threads) const {
  return state_->about(state_->get(name).and_then(
      [&](const zip::Record* record) { return state_->read(*record, out, threads); }));
}

Result<std::vector<std::byte>> ArchiveReader::read(std::string_view name) const {
  return state_->about(state_->get(name).and_then(
      [this](const zip::Record* record) { return state_->read_whole(*record); }));
}

Result<RecordContent> ArchiveReader::content(std::string_view name) const {
  TRY_ASSIGN(const zip::Record* const record, state_->about(state_->get(name)));
  const State* const state = state_.get();
  return RecordContent::produced(
      record->size, [=](const RecordContent::Take& take) { return state->copy(*record, take); });
}

Result<bool> ArchiveReader::verify_crc(std::string_view name) const {
  return state_->about(state_->get(name).and_then(
      [this](const zip::Record* record) { return state_->verify_crc(*record); }));
}

Result<std::uint64_t> ArchiveReader::version() const {
  bytes::ReadCache cache(state_->archive, *std::pmr::new_delete_resource());
  return state_->about(zip::read_version(state_->directory, cache));
}

Result<std::optional<std::string>> ArchiveReader::serialization_id() const {
  const zip::Record* record = state_->directory.find(".data/serialization_id");
  if (record == nullptr) return std::optional<std::string>{};
  constexpr std::uint64_t digits = 40;
  bytes::ReadCache cache(state_->archive, *std::pmr::new_delete_resource());
  const Result<zip::RecordBytes> content =
      zip::read_record(state_->directory, *record, cache, state_->limits.record_bytes);
  if (!content) return state_->about(content.error());
  std::string id(reinterpret_cast<const char*>(content->bytes.data()), content->bytes.size());
  if (id.size() == digits && id.find_first_not_of("0123456789") == std::string::npos)
    return std::optional<std::string>(std::move(id));
  return state_->about(
      Error{ErrorCode::corrupt,
            "record .data/serialization_id holds " + bytes::quote(id, 60) + ", expected 40 digits",
            content->file_offset,
            {}});
}

}  // namespace weightmap
