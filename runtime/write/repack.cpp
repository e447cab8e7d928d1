#include "weightmap/repack.hpp"

#include <algorithm>
#include <utility>

#include "runtime/archive/last_records.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/write/convert_elements.hpp"
#include "runtime/write/record_list.hpp"
#include "runtime/write/repack_legacy.hpp"
#include "runtime/write/rewritten_pickle.hpp"
#include "runtime/write/source_archive.hpp"
#include "runtime/write/tensor_calls.hpp"

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
  Result<void> check_dtypes() const;
  Result<void> plan_changes();
  Result<StorageChange> change_of(std::string_view key, const StorageUse& use) const;
  Result<void> check_converted();
  Result<void> change_contents();
  void drop_unused();
  Result<void> put_in_order();
  void say_alignment();

  const SourceArchive& source_;
  const RepackOptions& options_;
  NewLayout layout_;
  std::vector<NewRecord> records_;
  TensorCalls calls_;
  StorageChanges changes_;
  std::vector<std::byte> pickle_;
  std::string alignment_text_;
  bool is_in_order_ = true;  // of the storages none is missing or elsewhere
  RepackReport report_;
};

Result<void> Repack::plan() {
  TRY_ASSIGN(records_, source_.records());
  if (options_.compact || options_.dtype) {
    if (checkpoint().info().format != "torch_zip")
      return failure(ErrorCode::unsupported,
                     "is a " + std::string(checkpoint().info().format) +
                         " file, whose pickle is not written again: repack it without compact and "
                         "dtype");
    TRY(check_dtypes());
    TRY(plan_changes());
    TRY(check_converted());
    TRY(change_contents());
    if (options_.compact) drop_unused();
  }
  if (!options_.order.empty()) TRY(put_in_order());
  say_alignment();
  return {};
}

Result<void> Repack::check_dtypes() const {
  if (!options_.dtype || can_convert(options_.dtype->from, options_.dtype->to)) return {};
  return failure(ErrorCode::invalid_argument,
                 std::string(to_string(options_.dtype->from)) + " cannot become " +
                     std::string(to_string(options_.dtype->to)) +
                     ": only float64, float32, float16 and bfloat16 are converted");
}

Result<void> Repack::plan_changes() {
  TRY(checkpoint().load_root());
  TRY_ASSIGN(calls_, find_tensor_calls(checkpoint().root()));
  for (const auto& [key, use] : calls_.storages) {
    TRY_ASSIGN(const StorageChange change, change_of(key, use));
    TRY_ASSIGN(const std::uint64_t size, source_.archive().size(storage_record(key)));
    const std::uint64_t stays = change.last - change.first;
    report_.dropped_bytes += size - stays;
    if (stays != size || change.dtype) changes_.emplace(key, change);
  }
  if (changes_.empty()) return {};
  TRY_ASSIGN(pickle_, rewrite_pickle(checkpoint().root(), calls_, changes_));
  return {};
}

Result<StorageChange> Repack::change_of(std::string_view key, const StorageUse& use) const {
  StorageChange change;
  TRY_ASSIGN(change.last, source_.archive().size(storage_record(key)));
  if (options_.compact && !use.is_bare) {
    // Cut where an element of each of the tensors begins.
    const std::uint64_t end = std::min(use.last, change.last);
    const std::uint64_t rest = end % use.unit;
    change.first = std::min(use.first, end) / use.unit * use.unit;
    change.last = std::min(change.last, rest == 0 ? end : end - rest + use.unit);
  }
  const auto& dtype = options_.dtype;
  if (dtype && dtype->from != dtype->to && use.dtype == dtype->from && !use.keeps_dtype)
    change.dtype = dtype->to;
  return change;
}

// A tensor may be pickled in a way that calls_ knows nothing of.
Result<void> Repack::check_converted() {
  const auto& dtype = options_.dtype;
  if (!dtype || dtype->from == dtype->to) return {};
  for (const NamedTensor& tensor : checkpoint().tensors()) {
    if (tensor.view.dtype() != dtype->from) continue;
    const auto change = changes_.find(tensor.storage);
    const auto use = calls_.storages.find(tensor.storage);
    if (change != changes_.end() && change->second.dtype)
      ++report_.converted_tensors;
    else if (use == calls_.storages.end() || !use->second.keeps_dtype)
      return failure(ErrorCode::unsupported,
                     "tensor " + bytes::quote(tensor.name) + " cannot become " +
                         std::string(to_string(dtype->to)) +
                         ": the way in which it is pickled is not one that can be changed");
  }
  return {};
}

Result<void> Repack::change_contents() {
  if (changes_.empty()) return {};
  const bool is_foreign = checkpoint().info().byteorder != native_byte_order;
  for (NewRecord& record : records_) {
    if (record.name == "data.pkl") record.content = RecordContent::bytes(pickle_);
    const auto change = record.is_storage() ? changes_.find(record.key()) : changes_.end();
    if (change == changes_.end()) continue;
    const auto& [first, last, dtype] = change->second;
    TRY_ASSIGN(record.content, source_.archive().content(record.name, first, last - first));
    if (dtype)
      record.content =
          converted(std::move(record.content), options_.dtype->from, *dtype, is_foreign);
  }
  return {};
}

void Repack::drop_unused() {
  const std::size_t before = records_.size();
  std::erase_if(records_, [this](const NewRecord& record) {
    const bool is_unused = record.is_storage() && !calls_.storages.contains(record.key());
    if (is_unused) report_.dropped_bytes += record.content.size();
    return is_unused;
  });
  is_in_order_ = is_in_order_ && records_.size() == before;
}

Result<void> Repack::put_in_order() {
  const auto first_storage = std::ranges::find_if(records_, &NewRecord::is_storage);
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (const std::string& name : options_.order) {
    TRY_ASSIGN(const NamedTensor tensor, checkpoint().get(name));
    ranks.emplace(tensor.storage, ranks.size());
  }
  const auto rank = [&](const NewRecord& record) {
    const auto found = record.is_storage() ? ranks.find(record.key()) : ranks.end();
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
    const auto pickle = std::ranges::find(records_, "data.pkl", &NewRecord::name);
    records_.insert(std::next(pickle), {".storage_alignment", said});
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
