#include "bench/archive_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/zip/crc32.hpp"
#include "runtime/zip/emit.hpp"

namespace weightmap::bench {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

}  // namespace

ArchiveWriter::ArchiveWriter(std::FILE* file, std::string top)
    : file_(file), top_(std::move(top)), chunk_(chunk_bytes) {}

ArchiveWriter::~ArchiveWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void ArchiveWriter::write(std::span<const std::byte> bytes) {
  if (error_ == 0 && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    error_ = errno;
  position_ += bytes.size();
}

void ArchiveWriter::record(std::string_view name, std::string_view content) {
  record(name, content.size(), [content, at = std::size_t{0}](std::span<std::byte> out) mutable {
    std::memcpy(out.data(), content.data() + at, out.size());
    at += out.size();
  });
}

void ArchiveWriter::record(std::string_view name, std::uint64_t size,
                           const std::function<void(std::span<std::byte>)>& fill) {
  const std::string full_name = top_ + "/" + std::string(name);
  zip::EmittedRecord entry{full_name, position_, size, size, 0};
  std::vector<std::byte> framing;
  bytes::ByteSink sink(framing);
  zip::emit_local_header(sink, layout_, entry);
  write(framing);
  for (std::uint64_t left = size; left > 0 && error_ == 0;) {
    const std::span piece(chunk_.data(), std::min<std::uint64_t>(left, chunk_bytes));
    fill(piece);
    entry.crc32 = zip::crc32(piece, entry.crc32);
    write(piece);
    left -= piece.size();
  }
  framing.clear();
  zip::emit_descriptor(sink, entry);
  write(framing);
  bytes::ByteSink directory(directory_);
  zip::emit_central_entry(directory, entry);
  ++records_;
}

Result<void> ArchiveWriter::finish() {
  const std::uint64_t directory_offset = position_;
  write(directory_);
  std::vector<std::byte> end;
  bytes::ByteSink sink(end);
  zip::emit_end(sink, directory_offset, directory_.size(), records_);
  write(end);
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0) return {};
  return failure(ErrorCode::io, "cannot be written: " + std::generic_category().message(error_));
}

}  // namespace weightmap::bench
