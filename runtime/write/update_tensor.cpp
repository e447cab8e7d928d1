#include <algorithm>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/write/source_archive.hpp"
#include "weightmap/repack.hpp"

namespace weightmap {
namespace {

Result<void> check_plain(const NamedTensor& tensor) {
  const auto refuse = [&](const std::string& why) {
    return failure(ErrorCode::unsupported,
                   "tensor " + bytes::quote(tensor.name) + " cannot be updated: " + why);
  };
  if (tensor.view.is_foreign_byte_order())
    return refuse("its elements have the other byte order than this machine");
  if (tensor.view.is_conjugate() || tensor.view.is_negative())
    return refuse("its elements are stored conjugated or negated");
  if (!tensor.view.is_contiguous()) return refuse("its elements do not lie row-major in one piece");
  return {};
}

// Names of other tensors with some of these bytes.
std::vector<std::string> overlapping(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  const std::span<const std::byte> bytes = tensor.view.bytes();
  std::vector<std::string> names;
  for (const NamedTensor& other : checkpoint.tensors()) {
    const std::span<const std::byte> others = other.view.bytes();
    const bool is_apart = others.empty() || bytes.empty() ||
                          others.data() >= bytes.data() + bytes.size() ||
                          bytes.data() >= others.data() + others.size();
    if (!is_apart && other.index != tensor.index) names.emplace_back(other.name);
  }
  return names;
}

std::string first_three(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i)
    text += (i == 0 ? "" : ", ") + bytes::quote(names[i]);
  if (names.size() > 3) text += " and " + std::to_string(names.size() - 3) + " more";
  return text;
}

// The storage with other bytes from `first` on.
Result<RecordContent> patched(const ArchiveReader& archive, const NewRecord& storage,
                              std::uint64_t first, const RecordContent& elements) {
  const std::uint64_t behind = first + elements.size();
  TRY_ASSIGN(RecordContent before, archive.content(storage.name, 0, first));
  TRY_ASSIGN(RecordContent after,
             archive.content(storage.name, behind, storage.content.size() - behind));
  return RecordContent::produced(
      storage.content.size(),
      [elements, before = std::move(before),
       after = std::move(after)](const RecordContent::Take& take) -> Result<void> {
        TRY(before.produce()(take));
        TRY(elements.produce() ? elements.produce()(take) : take(elements.memory()));
        return after.produce()(take);
      });
}

// Checks the request and puts the elements into the records.
Result<UpdateReport> plan_update(const SourceArchive& source, std::vector<NewRecord>& records,
                                 std::string_view name, const RecordContent& elements,
                                 const UpdateOptions& options) {
  TRY_ASSIGN(const NamedTensor tensor, source.checkpoint().get(name));
  TRY(check_plain(tensor));
  UpdateReport report{.tensor_bytes = tensor.view.nbytes(), .file_bytes = 0, .others = {}};
  if (elements.size() != report.tensor_bytes)
    return failure(ErrorCode::invalid_argument, "tensor " + bytes::quote(name) + " has " +
                                                    bytes::counted(report.tensor_bytes, "byte") +
                                                    ", the new elements have " +
                                                    std::to_string(elements.size()));
  report.others = overlapping(source.checkpoint(), tensor);
  if (!options.shared && !report.others.empty())
    return failure(ErrorCode::invalid_argument,
                   "tensor " + bytes::quote(name) + " shares its bytes, so " +
                       first_three(report.others) + " would change, too");
  const auto storage = std::ranges::find(records, storage_record(tensor.storage), &NewRecord::name);
  const std::uint64_t first =
      static_cast<std::uint64_t>(tensor.storage_offset) * element_size(tensor.view.dtype());
  if (report.tensor_bytes == 0) return report;
  TRY_ASSIGN(storage->content, patched(source.archive(), *storage, first, elements));
  return report;
}

}  // namespace

Result<UpdateReport> update_tensor(const std::filesystem::path& path, std::string_view name,
                                   const RecordContent& elements, const UpdateOptions& options) {
  TRY_ASSIGN(const SourceArchive source, SourceArchive::open(path, options.limits));
  TRY_ASSIGN(std::vector<NewRecord> records, source.records());
  Result<UpdateReport> report = plan_update(source, records, name, elements, options);
  if (!report) return about_file(std::move(report).error(), path);
  TRY_ASSIGN(report->file_bytes,
             source.write(records, source.layout(), path, options.file, options.progress));
  return report;
}

}  // namespace weightmap
