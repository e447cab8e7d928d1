#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mmap/guard.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/base/zip/plan.hpp"
#include "runtime/base/zip/text_records.hpp"
#include "runtime/services/archive/own_records.hpp"
#include "weightmap/archive.hpp"

namespace weightmap {

// The destination of an archive: a new file, or a function.
class WriterSink {
 public:
  virtual ~WriterSink() = default;
  // Reserves space; `bytes` is the size of the whole archive.
  virtual Result<void> reserve(std::uint64_t bytes) = 0;
  virtual Result<void> write(std::span<const std::byte> content) = 0;
  // Writes zeros, as a hole where the destination supports it.
  virtual Result<void> skip(std::uint64_t bytes) = 0;
  // Finishes the destination after everything was written; `end` is its last bytes.
  virtual Result<void> commit(std::span<const std::byte> end) = 0;
};

namespace {

static_assert(ArchiveWriter::max_version == zip::max_version);

// Small contents are gathered to save system calls.
constexpr std::size_t gathered_bytes = std::size_t{1} << 20;
constexpr std::size_t small_bytes = std::size_t{64} << 10;
// Content in memory is summed and written in pieces that stay in the processor's cache.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;
constexpr std::uint64_t report_bytes = std::uint64_t{4} << 20;

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

struct ArchiveWriter::State {
  State(zip::Plan planned, std::unique_ptr<WriterSink> to, const ArchiveWriterOptions& given)
      : plan(std::move(planned)), sink(std::move(to)), options(given) {
    gathered.reserve(gathered_bytes + small_bytes);
  }

  // Repeats the first failure for all later calls.
  template <class T>
  Result<T> once(Result<T> result) {
    if (!result) failed = result.error();
    return result;
  }
  Result<void> check() const {
    if (failed) return tl::unexpected<Error>(*failed);
    if (finished) return failure(ErrorCode::invalid_argument, "the archive is finished");
    return {};
  }
  std::string named(std::size_t index) const { return bytes::quote(plan.name(index)); }
  Result<void> about(std::size_t index, Result<void> result) const {
    if (!result) result.error().message.insert(0, "the record " + named(index) + ": ");
    return result;
  }
  Place place(std::size_t index) const {
    const zip::Plan::Planned& record = plan.records()[index];
    return {record.header_offset, record.payload_offset, record.stored_size};
  }

  Result<void> flush();
  Result<void> gather_if_full() {
    return gathered.size() < gathered_bytes ? Result<void>{} : flush();
  }
  Result<void> report(std::uint64_t bytes);
  Result<void> put(std::span<const std::byte> part);
  Result<void> put_summed(std::size_t index, std::span<const std::byte> part);
  // Errors of the content name the record; errors of `take` are returned unchanged.
  Result<void> produce(const RecordContent& content, std::size_t index,
                       const RecordContent::Take& take);
  tl::unexpected<Error> wrong_size(std::size_t index, const std::string& got) const {
    return failure(ErrorCode::invalid_argument,
                   "the record " + named(index) + " was announced with " +
                       std::to_string(plan.records()[index].size) + " bytes and got " + got);
  }
  // Fails if the memory is mapped from a file that was lost, so the write is not trustworthy.
  Result<void> check_read(std::size_t index, std::span<const std::byte> part) const {
    return about(index, mmap::Guard::check_read(part));
  }
  Result<void> put_produced(std::size_t index, const RecordContent& content);
  Result<void> put_zeros(std::size_t index, std::uint64_t size);
  Result<void> leave_out(std::uint64_t size);
  Result<void> put_memory(std::size_t index, const RecordContent& content);
  Result<void> put_content(std::size_t index, const RecordContent& content);
  Result<void> end_record(std::size_t index);
  Result<std::size_t> begin(std::string_view name, std::uint64_t size);
  Result<Place> write_stored(std::string_view name, const RecordContent& content);
  Result<Place> write_deflated(std::string_view name, const RecordContent& content);
  Result<void> write_last_records();
  Result<std::uint64_t> finish();

  zip::Plan plan;
  std::unique_ptr<WriterSink> sink;
  ArchiveWriterOptions options;
  std::vector<std::byte> gathered;  // bytes not yet given to the sink
  std::optional<Error> failed;
  std::uint64_t announced = 0;  // bytes in all; 0: unknown
  std::uint64_t done = 0;
  std::uint64_t reported = 0;
  std::uint64_t version = default_version;
  bool finished = false;
};

Result<void> ArchiveWriter::State::flush() {
  TRY(sink->write(gathered));
  gathered.clear();
  return {};
}

Result<void> ArchiveWriter::State::report(std::uint64_t bytes) {
  done += bytes;
  if (!options.progress || done - reported < report_bytes) return {};
  reported = done;
  if (options.progress(done, std::max(done, announced))) return {};
  return failure(ErrorCode::cancelled, "the writing was stopped");
}

Result<void> ArchiveWriter::State::put(std::span<const std::byte> part) {
  if (part.size() < small_bytes) {
    gathered.insert(gathered.end(), part.begin(), part.end());
    TRY(gather_if_full());
  } else {
    TRY(flush());
    TRY(sink->write(part));
  }
  return report(part.size());
}

Result<void> ArchiveWriter::State::put_summed(std::size_t index, std::span<const std::byte> part) {
  while (!part.empty()) {
    const auto chunk = part.first(std::min(part.size(), piece_bytes));
    if (options.crc32) plan.set_crc32(index, zip::crc32(chunk, plan.records()[index].crc32));
    TRY(put(chunk));
    part = part.subspan(chunk.size());
  }
  return {};
}

Result<void> ArchiveWriter::State::produce(const RecordContent& content, std::size_t index,
                                           const RecordContent::Take& take) {
  bool taken = true;
  Result<void> produced = content.produce()([&](std::span<const std::byte> part) {
    Result<void> ok = take(part);
    taken = ok.has_value();
    return ok;
  });
  return taken ? about(index, std::move(produced)) : produced;
}

Result<void> ArchiveWriter::State::put_produced(std::size_t index, const RecordContent& content) {
  std::uint64_t got = 0;
  TRY(produce(content, index, [&](std::span<const std::byte> part) -> Result<void> {
    if (part.size() > content.size() - got) return wrong_size(index, "more");
    got += part.size();
    return put_summed(index, part);
  }));
  return got == content.size() ? Result<void>{} : wrong_size(index, std::to_string(got));
}

Result<void> ArchiveWriter::State::put_zeros(std::size_t index, std::uint64_t size) {
  const std::vector<std::byte> zeros(std::min<std::uint64_t>(size, piece_bytes));
  for (std::uint64_t left = options.crc32 ? size : 0; left > 0;) {
    const auto part = std::span(zeros).first(std::min<std::uint64_t>(left, zeros.size()));
    plan.set_crc32(index, zip::crc32(part, plan.records()[index].crc32));
    left -= part.size();
  }
  return leave_out(size);
}

Result<void> ArchiveWriter::State::leave_out(std::uint64_t size) {
  if (size == 0) return {};
  TRY(flush());
  TRY(sink->skip(size));
  return report(size);
}

Result<void> ArchiveWriter::State::put_memory(std::size_t index, const RecordContent& content) {
  Result<void> ok =
      content.is_summed() ? put_summed(index, content.memory()) : put(content.memory());
  TRY(check_read(index, content.memory()));
  return ok;
}

Result<void> ArchiveWriter::State::put_content(std::size_t index, const RecordContent& content) {
  switch (content.kind()) {
    case RecordContent::Kind::memory:
      return put_memory(index, content);
    case RecordContent::Kind::produced:
      return put_produced(index, content);
    case RecordContent::Kind::zeros:
      return put_zeros(index, content.size());
    case RecordContent::Kind::reserved:
      break;
  }
  return leave_out(content.size());
}

Result<void> ArchiveWriter::State::end_record(std::size_t index) {
  bytes::ByteSink to(gathered);
  plan.emit_descriptor(to, index);
  return gather_if_full();
}

Result<std::size_t> ArchiveWriter::State::begin(std::string_view name, std::uint64_t size) {
  TRY_ASSIGN(const std::size_t index, plan.add(name, size));
  bytes::ByteSink to(gathered);
  plan.emit_local_header(to, index);
  return index;
}

Result<ArchiveWriter::Place> ArchiveWriter::State::write_stored(std::string_view name,
                                                                const RecordContent& content) {
  TRY_ASSIGN(const std::size_t index, begin(name, content.size()));
  TRY(put_content(index, content));
  TRY(end_record(index));
  return place(index);
}

Result<ArchiveWriter::Place> ArchiveWriter::State::write_deflated(std::string_view name,
                                                                  const RecordContent& content) {
  std::vector<std::byte> produced;
  if (content.produce())
    TRY(content.produce()([&](std::span<const std::byte> part) -> Result<void> {
      produced.insert(produced.end(), part.begin(), part.end());
      return {};
    }));
  const std::span<const std::byte> all =
      content.produce() ? std::span<const std::byte>(produced) : content.memory();
  const std::vector<std::byte> compressed = zip::deflate(all);
  if (compressed.empty()) return write_stored(name, RecordContent::bytes(all));
  TRY_ASSIGN(const std::size_t index,
             plan.add(name, all.size(), compressed.size(), zip::Method::deflated));
  if (options.crc32) plan.set_crc32(index, zip::crc32(all));
  bytes::ByteSink to(gathered);
  plan.emit_local_header(to, index);
  TRY(check_read(index, content.memory()));
  TRY(put(compressed));
  TRY(end_record(index));
  return place(index);
}

Result<void> ArchiveWriter::State::write_last_records() {
  const std::string text = version_text(version);
  TRY(write_stored(version_name(version), RecordContent::text(text)));
  if (!plan.has("byteorder"))
    TRY(write_stored("byteorder", RecordContent::text(native_byte_order)));
  if (plan.has(SerializationId::record)) return {};
  SerializationId id;
  for (std::size_t i = 0; i < plan.records().size(); ++i)
    id.add(plan.name(i), plan.records()[i].size, plan.records()[i].crc32);
  TRY(write_stored(SerializationId::record, RecordContent::text(id.digits())));
  return {};
}

Result<std::uint64_t> ArchiveWriter::State::finish() {
  TRY(write_last_records());
  const std::uint64_t bytes = plan.archive_bytes();
  if (announced != 0 && bytes != announced)
    return failure(ErrorCode::invalid_argument, "the archive was announced with " +
                                                    std::to_string(announced) + " bytes and has " +
                                                    std::to_string(bytes));
  TRY(flush());
  bytes::ByteSink to(gathered);
  plan.emit_directory(to);
  TRY(sink->write(gathered));
  TRY(sink->commit(gathered));
  gathered.clear();
  finished = true;
  if (options.progress) options.progress(bytes, bytes);
  return bytes;
}

ArchiveWriter::ArchiveWriter(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
ArchiveWriter::ArchiveWriter(ArchiveWriter&&) noexcept = default;
ArchiveWriter& ArchiveWriter::operator=(ArchiveWriter&&) noexcept = default;
ArchiveWriter::~ArchiveWriter() = default;

Result<ArchiveWriter> ArchiveWriter::create(const std::filesystem::path& path,
                                            const ArchiveWriterOptions& options) {
  TRY_ASSIGN(zip::Plan plan,
             zip::Plan::make(archive_name(path, options.archive_name), options.alignment));
  TRY_ASSIGN(NewFile file, NewFile::create(path, options.file));
  return ArchiveWriter(std::make_unique<State>(
      std::move(plan), std::make_unique<FileSink>(std::move(file)), options));
}

Result<ArchiveWriter> ArchiveWriter::to_function(Write write, const ArchiveWriterOptions& options) {
  TRY_ASSIGN(zip::Plan plan,
             zip::Plan::make(archive_name({}, options.archive_name), options.alignment));
  return ArchiveWriter(std::make_unique<State>(
      std::move(plan), std::make_unique<StreamSink>(std::move(write)), options));
}

Result<void> ArchiveWriter::reserve_space(std::uint64_t archive_bytes) {
  TRY(state_->check());
  state_->announced = archive_bytes;
  return state_->once(state_->sink->reserve(archive_bytes));
}

Result<ArchiveWriter::Place> ArchiveWriter::write(std::string_view name,
                                                  const RecordContent& content,
                                                  Compression compression) {
  TRY(state_->check());
  const bool has_bytes = content.kind() == RecordContent::Kind::memory ||
                         content.kind() == RecordContent::Kind::produced;
  return state_->once(compression == Compression::deflated && has_bytes
                          ? state_->write_deflated(name, content)
                          : state_->write_stored(name, content));
}

Result<void> ArchiveWriter::require_version(std::uint64_t version) {
  TRY(state_->check());
  if (version > max_version)
    return failure(ErrorCode::invalid_argument, "version " + std::to_string(version) +
                                                    " is higher than the highest there is, " +
                                                    std::to_string(max_version));
  state_->version = std::max(state_->version, version);
  return {};
}

Result<std::uint64_t> ArchiveWriter::finish() {
  TRY(state_->check());
  return state_->once(state_->finish());
}

}  // namespace weightmap
