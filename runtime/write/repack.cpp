#include "weightmap/repack.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/write/record_list.hpp"
#include "runtime/write/repack_legacy.hpp"
#include "runtime/write/source_archive.hpp"
#include "runtime/zip/layout.hpp"
#include "runtime/zip/storage_offsets.hpp"

namespace weightmap {
namespace {

class Repack {
 public:
  Repack(const SourceArchive& source, const RepackOptions& options)
      : source_(source), options_(options), layout_(source.layout()) {
    layout_.alignment = options.alignment.value_or(layout_.alignment);
    layout_.crc32 = options.crc32.value_or(layout_.crc32);
  }

  // Computes everything that is to be written.
  Result<void> plan();
  Result<RepackReport> write(const std::filesystem::path& to);

 private:
  const Checkpoint& checkpoint() const noexcept { return source_.checkpoint(); }
  Result<void> put_in_order();
  void say_alignment();

  const SourceArchive& source_;
  const RepackOptions& options_;
  NewLayout layout_;
  std::vector<NewRecord> records_;
  std::string alignment_text_;
  bool is_in_order_ = true;  // no storage is elsewhere
  RepackReport report_;
};

Result<void> Repack::plan() {
  TRY_ASSIGN(records_, source_.records());
  if (!options_.order.empty()) TRY(put_in_order());
  say_alignment();
  return {};
}

Result<void> Repack::put_in_order() {
  const auto first_storage = std::ranges::find_if(records_, &NewRecord::is_storage);
  std::unordered_map<std::string, std::size_t> ranks;
  for (const std::string& name : options_.order) {
    TRY_ASSIGN(const NamedTensor tensor, checkpoint().get(name));
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

// .format_version lets torch compute where storages are.
void Repack::say_alignment() {
  const bool pads_only = RecordList::pads_only(layout_.alignment);
  if (!pads_only || !is_in_order_)
    std::erase_if(records_,
                  [](const NewRecord& record) { return record.name == ".format_version"; });
  const std::uint64_t padding = pads_only ? layout_.alignment : zip::Layout::default_alignment;
  alignment_text_ = std::to_string(padding);
  const RecordContent said = RecordContent::text(alignment_text_);
  const auto record = std::ranges::find(records_, ".storage_alignment", &NewRecord::name);
  if (padding == checkpoint().info().storage_alignment) return;
  if (record != records_.end()) {
    record->content = said;
  } else {
    // Behind the pickle, as torch.save writes it; an archive of torch.export has none.
    const auto pickle = std::ranges::find(records_, "data.pkl", &NewRecord::name);
    const auto place = pickle == records_.end() ? records_.begin() : std::next(pickle);
    records_.insert(place, {".storage_alignment", said, false});
  }
}

Result<RepackReport> Repack::write(const std::filesystem::path& to) {
  report_.old_bytes = checkpoint().info().file_bytes;
  report_.alignment = layout_.alignment;
  report_.storages =
      static_cast<std::uint64_t>(std::ranges::count_if(records_, &NewRecord::is_storage));
  TRY_ASSIGN(report_.new_bytes,
             source_.write(records_, layout_, to, options_.file, options_.progress));
  return std::move(report_);
}

}  // namespace

Result<RepackReport> repack(const std::filesystem::path& from, const std::filesystem::path& to,
                            const RepackOptions& options) {
  OpenOptions look = OpenOptions::to_look();
  look.limits = options.limits;
  TRY_ASSIGN(Checkpoint opened, Checkpoint::open(from, look));
  if (opened.info().format == "torch_legacy") {
    Result<RepackReport> made = repack_legacy(opened, to, options);
    if (!made) return about_file(std::move(made).error(), from);
    return made;
  }
  TRY_ASSIGN(const SourceArchive source, SourceArchive::open(from, std::move(opened), look));
  Repack repacked(source, options);
  if (Result<void> planned = repacked.plan(); !planned)
    return about_file(std::move(planned).error(), from);
  return repacked.write(to);
}

}  // namespace weightmap
