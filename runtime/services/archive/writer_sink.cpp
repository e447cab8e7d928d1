#include "runtime/services/archive/writer_sink.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

class FileSink final : public WriterSink {
 public:
  explicit FileSink(NewFile file) noexcept : file_(std::move(file)) {}

  Result<void> reserve(std::uint64_t bytes) override { return file_.reserve(bytes); }
  Result<void> write(std::span<const std::byte> content) override { return file_.write(content); }
  Result<void> skip(std::uint64_t bytes) override { return file_.skip(bytes); }
  Result<void> commit(std::span<const std::byte> end) override {
    TRY(file_.sync());
    TRY(file_.check_end(end));
    return file_.commit();
  }

 private:
  NewFile file_;
};

class StreamSink final : public WriterSink {
 public:
  explicit StreamSink(ArchiveWriter::Write write) noexcept : write_(std::move(write)) {}

  Result<void> reserve(std::uint64_t) override { return {}; }
  Result<void> write(std::span<const std::byte> content) override { return write_(content); }
  Result<void> skip(std::uint64_t bytes) override {
    const std::vector<std::byte> zeros(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 20));
    while (bytes > 0) {
      const std::uint64_t count = std::min<std::uint64_t>(bytes, zeros.size());
      TRY(write_(std::span(zeros).first(count)));
      bytes -= count;
    }
    return {};
  }
  Result<void> commit(std::span<const std::byte>) override { return {}; }

 private:
  ArchiveWriter::Write write_;
};

}  // namespace

std::unique_ptr<WriterSink> WriterSink::to(NewFile file) {
  return std::make_unique<FileSink>(std::move(file));
}

std::unique_ptr<WriterSink> WriterSink::to(ArchiveWriter::Write write) {
  return std::make_unique<StreamSink>(std::move(write));
}

}  // namespace weightmap
