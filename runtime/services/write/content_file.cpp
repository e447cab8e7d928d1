#include "runtime/services/write/content_file.hpp"

#include <algorithm>
#include <utility>

#include "mmap/guard.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

constexpr std::size_t gathered_bytes = std::size_t{1} << 20;
constexpr std::size_t small_bytes = std::size_t{64} << 10;
constexpr std::uint64_t told_bytes = std::uint64_t{4} << 20;

Result<void> about(const std::string& what, Result<void> result) {
  if (!result) result.error().message.insert(0, what + ": ");
  return result;
}

tl::unexpected<Error> wrong_size(const RecordContent& content, const std::string& what,
                                 const std::string& got) {
  return failure(
      ErrorCode::invalid_argument,
      what + " was announced with " + std::to_string(content.size()) + " bytes and got " + got);
}

}  // namespace

Result<void> WrittenBytes::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!progress_ || done_ - told_ < told_bytes) return {};
  told_ = done_;
  if (progress_(done_, all_)) return {};
  return failure(ErrorCode::cancelled, "the writing was stopped");
}

void WrittenBytes::finish() const {
  if (progress_) progress_(all_, all_);
}

Result<ContentFile> ContentFile::create(std::filesystem::path path, std::uint64_t bytes,
                                        const NewFileOptions& options, WrittenBytes& written) {
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.reserve(bytes));
  return ContentFile(std::move(path), bytes, std::move(file), written);
}

Result<void> ContentFile::put(const RecordContent& content, const std::string& what) {
  switch (content.kind()) {
    case RecordContent::Kind::memory:
      TRY(put_memory(content.memory()));
      // The memory may be mapped from a file that was lost meanwhile.
      return about(what, mmap::Guard::check_read(content.memory()));
    case RecordContent::Kind::produced:
      return put_produced(content, what);
    case RecordContent::Kind::zeros:
    case RecordContent::Kind::reserved:
      break;
  }
  return put_zeros(content.size());
}

Result<void> ContentFile::sync() {
  TRY(flush());
  gathered_ = {};
  return file_.sync();
}

Result<void> ContentFile::flush() {
  if (gathered_.empty()) return {};
  TRY(file_.write(gathered_));
  gathered_.clear();
  return {};
}

Result<void> ContentFile::gather(std::span<const std::byte> part) {
  gathered_.insert(gathered_.end(), part.begin(), part.end());
  return gathered_.size() < gathered_bytes ? Result<void>{} : flush();
}

Result<void> ContentFile::put_memory(std::span<const std::byte> memory) {
  while (!memory.empty()) {
    const auto part = memory.first(std::min<std::size_t>(memory.size(), told_bytes));
    if (part.size() < small_bytes) {
      TRY(gather(part));
    } else {
      TRY(flush());
      TRY(file_.write(part));
    }
    TRY(written_->add(part.size()));
    memory = memory.subspan(part.size());
  }
  return {};
}

Result<void> ContentFile::put_produced(const RecordContent& content, const std::string& what) {
  std::uint64_t got = 0;
  bool taken = true;
  Result<void> produced = content.produce()([&](std::span<const std::byte> part) -> Result<void> {
    const bool fits = part.size() <= content.size() - got;
    got += part.size();
    Result<void> ok = fits ? put_memory(part) : wrong_size(content, what, "more");
    taken = ok.has_value();
    return ok;
  });
  TRY(taken ? about(what, std::move(produced)) : produced);
  return got == content.size() ? Result<void>{} : wrong_size(content, what, std::to_string(got));
}

Result<void> ContentFile::put_zeros(std::uint64_t bytes) {
  TRY(flush());
  TRY(file_.skip(bytes));
  return written_->add(bytes);
}

}  // namespace weightmap
