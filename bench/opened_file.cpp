#include "bench/opened_file.hpp"

#include <string>
#include <utility>

#include "runtime/bytes/about_file.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "weightmap/options.hpp"

namespace weightmap::bench {
namespace {

template <class T>
tl::unexpected<Error> error_of(const Result<T>& result) {
  return tl::unexpected<Error>(result.error());
}

}  // namespace

pickle::ParseLimits parse_limits(std::uint64_t pickle_bytes) noexcept {
  const Limits limits;
  return {limits.base_memory + 5 * pickle_bytes, limits.depth};
}

Result<std::unique_ptr<OpenedFile>> OpenedFile::open(const std::filesystem::path& path,
                                                     std::uint64_t tensors) {
  Result<os::File> file = os::File::open(path, false);
  if (!file) return about_file(file.error(), path);
  std::unique_ptr<OpenedFile> opened(new OpenedFile(std::move(*file)));
  Result<void> done = opened->read_archive();
  if (done) done = opened->read_pickle();
  if (done) done = opened->place_tensors();
  if (!done) return about_file(done.error(), path);
  if (const std::size_t found = opened->table->tensors.size(); found != tensors)
    return about_file(
        {ErrorCode::corrupt,
         "has " + std::to_string(found) + " tensors, expected " + std::to_string(tensors),
         Error::no_offset,
         {}},
        path);
  return opened;
}

Result<void> OpenedFile::read_archive() {
  Result<zip::Directory> read = zip::Directory::read(windows, Limits().directory_bytes);
  if (!read) return error_of(read);
  directory = std::move(*read);
  if (const auto kind = torch::kind_of(directory); !kind) return error_of(kind);
  if (const auto head = torch::head_of(directory))
    if (const auto bytes = windows.bytes(head->offset, head->length); !bytes)
      return error_of(bytes);
  const Result<torch::ArchiveRecords> records =
      torch::read_archive_records(directory, windows, ByteOrder::little);
  if (!records) return error_of(records);
  locate.alignment = records->storage_alignment;
  return {};
}

Result<void> OpenedFile::read_pickle() {
  const zip::Record& record = *directory.find(torch::pickle_record);
  Result<zip::RecordBytes> content =
      zip::read_record(directory, record, windows, Limits().pickle_bytes);
  if (!content) return error_of(content);
  pickle_offset = content->file_offset;
  const std::span<const std::byte> pickle = content->bytes;
  Result<std::unique_ptr<value::Tree>> parsed =
      pickle::parse(std::move(*content).release(windows), pickle, pickle_offset,
                    parse_limits(pickle.size()), memory);
  if (!parsed) return error_of(parsed);
  tree = std::move(*parsed);
  return {};
}

Result<void> OpenedFile::place_tensors() {
  Result<torch::TensorTable> tensors =
      torch::read_tensors(*tree, {pickle_offset, {}}, memory, next_mark());
  if (!tensors) return error_of(tensors);
  table.emplace(std::move(*tensors));
  OpenStats stats;
  Result<std::pmr::vector<zip::StorageExtent>> located = zip::locate_storages(
      directory, table->storages.storages(), locate, windows, file, stats, memory);
  if (!located) return error_of(located);
  extents.emplace(std::move(*located));
  return {};
}

std::uint32_t OpenedFile::next_mark() noexcept {
  // Above the tensors that a walk can have marked: the call of each has more than 32 bytes.
  const auto most = static_cast<std::uint32_t>(64 + tree->pickle().size() / 32);
  first_mark += most;
  return first_mark - most;
}

}  // namespace weightmap::bench
