#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/archive/own_records.hpp"
#include "runtime/services/write/conversion.hpp"
#include "runtime/services/write/record_list.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"

namespace weightmap {
namespace {

// The alignment of a huge page. Higher alignments are coincidences.
constexpr std::uint64_t largest_alignment = std::uint64_t{2} << 20;

std::vector<ArchiveReader::RecordInfo> in_file_order(const ArchiveReader& archive) {
  std::vector<ArchiveReader::RecordInfo> records = archive.records();
  std::ranges::sort(records, {}, &ArchiveReader::RecordInfo::header_offset);
  return records;
}

bool is_filler(std::string_view name) { return name.starts_with(RecordList::filler_name); }

std::unordered_set<std::string> storage_records(const Checkpoint& checkpoint) {
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i)
    names.insert(zip::storage_record(Backing(checkpoint).storage(i).key));
  return names;
}

bool is_version(std::string_view name) { return name == "version" || name == ".data/version"; }

struct NewRecord {
  std::string name;
  RecordContent content;
  bool is_storage;  // of the checkpoint, filling the whole record
};

// A source archive: its records and the checkpoint of the same file.
class Relayout {
 public:
  Relayout(ArchiveReader archive, Checkpoint checkpoint, const ConvertOptions& options)
      : archive_(std::move(archive)), checkpoint_(std::move(checkpoint)), options_(options) {
    report_.tensors = checkpoint_.tensors().size();
    report_.alignment = options.alignment.value_or(found_alignment());
  }

  // Computes everything that is written.
  Result<void> plan() {
    TRY(collect());
    if (!options_.order.empty()) TRY(put_in_order());
    say_alignment();
    return {};
  }
  Result<ConvertReport> write(const std::filesystem::path& to);

 private:
  std::uint64_t found_alignment() const;
  Result<void> collect();
  Result<void> put_in_order();
  void say_alignment();
  bool has_crcs() const {
    return std::ranges::any_of(archive_.records(), [](const auto& one) { return one.crc32 != 0; });
  }

  ArchiveReader archive_;
  Checkpoint checkpoint_;
  const ConvertOptions& options_;
  std::vector<NewRecord> records_;
  std::string alignment_text_;
  bool is_in_order_ = true;  // no storage is elsewhere
  ConvertReport report_;
};

// Returns the alignment of storages behind fillers, which no record states.
std::uint64_t Relayout::found_alignment() const {
  std::uint64_t found = 0;
  bool is_moved = false;
  for (const ArchiveReader::RecordInfo& record : in_file_order(archive_)) {
    const std::uint64_t offset = is_moved ? archive_.payload_offset(record.name).value_or(0) : 0;
    found |= offset & -offset;
    is_moved = is_filler(record.name);
  }
  if (found == 0) return checkpoint_.info().storage_alignment;
  return std::min(found & -found, largest_alignment);
}

// Collects the records in file order, except fillers and those that ArchiveWriter adds itself.
Result<void> Relayout::collect() {
  const std::unordered_set<std::string> storages = storage_records(checkpoint_);
  bool is_end = false;
  bool has_byte_order = checkpoint_.info().byteorder == native_byte_order;
  for (const ArchiveReader::RecordInfo& record : in_file_order(archive_)) {
    is_end = is_end || is_version(record.name);
    if (is_version(record.name) || record.name == SerializationId::record ||
        record.name == torch::marks_record || is_filler(record.name))
      continue;
    if (record.name == "byteorder") {
      // A byteorder record behind the version is where ArchiveWriter writes this machine's.
      if (is_end && has_byte_order) continue;
      has_byte_order = true;
    }
    TRY_ASSIGN(RecordContent content, archive_.content(record.name));
    std::string name(record.name);
    const bool is_storage = storages.contains(name);
    records_.push_back({std::move(name), std::move(content), is_storage});
  }
  if (!has_byte_order)
    records_.push_back({"byteorder", RecordContent::text(checkpoint_.info().byteorder), false});
  return {};
}

Result<void> Relayout::put_in_order() {
  const auto first_storage = std::ranges::find_if(records_, &NewRecord::is_storage);
  std::unordered_map<std::string, std::size_t> ranks;
  for (const std::string& name : options_.order) {
    TRY_ASSIGN(const NamedTensor tensor, checkpoint_.get(name));
    ranks.emplace(zip::storage_record(tensor.storage), ranks.size());
  }
  const auto rank = [&](const NewRecord& record) {
    const auto found = ranks.find(record.name);
    return found == ranks.end() ? ranks.size() : found->second;
  };
  if (std::ranges::is_sorted(first_storage, records_.end(), {}, rank)) return {};
  is_in_order_ = false;
  std::ranges::stable_sort(first_storage, records_.end(), {}, rank);
  return {};
}

// With a .format_version, torch computes the places of storages.
void Relayout::say_alignment() {
  const bool pads_only = RecordList::pads_only(report_.alignment);
  if (!pads_only || !is_in_order_)
    std::erase_if(records_,
                  [](const NewRecord& record) { return record.name == ".format_version"; });
  const std::uint64_t padding = pads_only ? report_.alignment : zip::Layout::default_alignment;
  alignment_text_ = std::to_string(padding);
  const RecordContent said = RecordContent::text(alignment_text_);
  const auto record = std::ranges::find(records_, ".storage_alignment", &NewRecord::name);
  if (padding == checkpoint_.info().storage_alignment) return;
  if (record != records_.end()) {
    record->content = said;
  } else {
    // Inserted behind the pickle, as torch.save does; an archive of torch.export has no pickle.
    const auto pickle = std::ranges::find(records_, "data.pkl", &NewRecord::name);
    const auto place = pickle == records_.end() ? records_.begin() : std::next(pickle);
    records_.insert(place, {".storage_alignment", said, false});
  }
}

Result<ConvertReport> Relayout::write(const std::filesystem::path& to) {
  TRY_ASSIGN(RecordList list, RecordList::make(archive_.archive_name(), report_.alignment));
  for (const NewRecord& record : records_) {
    report_.storages += record.is_storage ? 1 : 0;
    TRY(record.is_storage ? list.add_storage(record.name, record.content)
                          : list.add(record.name, record.content));
  }
  TRY_ASSIGN(const std::uint64_t found, archive_.version());
  const std::uint64_t version = std::max(found, ArchiveWriter::default_version);
  TRY_ASSIGN(const std::uint64_t bytes, list.close(version));
  TRY_ASSIGN(ArchiveWriter archive,
             ArchiveWriter::create(to, {.alignment = list.padding(),
                                        .crc32 = options_.crc32.value_or(has_crcs()),
                                        .archive_name = std::string(archive_.archive_name()),
                                        .file = options_.file,
                                        .progress = options_.progress}));
  TRY(archive.require_version(version));
  TRY(archive.reserve_space(bytes));
  TRY(list.write(archive));
  if (checkpoint_.state() == CheckpointState::modified)
    return failure(ErrorCode::io, "the file was written to while it was copied");
  TRY_ASSIGN(report_.new_bytes, archive.finish());
  return std::move(report_);
}

}  // namespace

Result<ConvertReport> relayout(Checkpoint opened, const std::filesystem::path& from,
                               const ConversionTarget& target, const ConvertOptions& options) {
  if (opened.info().format == Format::torch_legacy || opened.info().format == Format::pickle) {
    return about_file(write_legacy_as_archive(opened, target.path, options), from);
  }
  // Errors name the file by the caller's path, unless that is its folder.
  std::error_code unknown;
  const bool is_file = std::filesystem::is_regular_file(from, unknown);
  const SourceFile& source = Checkpoint::Access::state(opened).sources.front();
  TRY_ASSIGN(ArchiveReader archive,
             ArchiveReader::open(is_file ? from : source.content_path(), options.open));
  if (!opened.is_current())
    return about_file({ErrorCode::io, "the file was replaced or written to while it was opened"},
                      from);
  Relayout planned(std::move(archive), std::move(opened), options);
  TRY(about_file(planned.plan(), from));
  return planned.write(target.path);
}

}  // namespace weightmap
