#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/pickle/write.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/services/archive/own_records.hpp"
#include "runtime/services/write/contents.hpp"
#include "runtime/services/write/conversion.hpp"
#include "runtime/services/write/record_list.hpp"
#include "weightmap/backing.hpp"

namespace weightmap {
namespace {

using value::Cell;

// Replaces a stream's references by an archive's, in the order of pickle::write().
class NewReferences {
 public:
  explicit NewReferences(const Checkpoint& source)
      : build_(*std::pmr::new_delete_resource(), {~std::uint64_t{0} / 4, 1000}) {
    for (std::size_t i = 0; i < Backing(source).storage_count(); ++i)
      storages_.emplace(Backing(source).storage(i).key, i);
  }

  // Numbers the storages in that order.
  Result<void> collect(const Value& root) {
    Result<void> refused;
    const auto meet = [&](const Value& value) -> std::optional<Value> {
      if (value.kind() == Value::Kind::persistent_id && refused) refused = add(value);
      return std::nullopt;
    };
    TRY(pickle::write(root, {.replace = meet}));
    TRY(refused);
    TRY_ASSIGN(tree_, std::move(build_).finish(build_.tuple(references_)));
    return {};
  }

  Result<std::vector<std::byte>> rewrite(const Value& root) const {
    std::size_t next = 0;
    return pickle::write(
        root, {.replace = [&](const Value& value) -> std::optional<Value> {
          if (value.kind() != Value::Kind::persistent_id || value.tree() == tree_.get())
            return std::nullopt;
          return Value(tree_.get(), references_[next++]);
        }});
  }

  // Maps numbers to positions among the source's storages.
  const std::vector<std::size_t>& storages() const noexcept { return order_; }

 private:
  Result<void> add(const Value& reference) {
    const Value id = reference.persistent_id();
    const bool is_known = id.kind() == Value::Kind::tuple && id.size() == 6 && id[2].string() &&
                          id[1].kind() == Value::Kind::global && id[4].integer() &&
                          storages_.contains(*id[2].string());
    if (!is_known)
      return failure(ErrorCode::unsupported, "has a reference that is not one to a storage");
    if (!id[5].is_none())
      return failure(ErrorCode::unsupported,
                     "storage " + bytes::quote(id[2].string().value_or("")) +
                         " is referred to by a part of it, which an archive has no word for; load "
                         "the file with torch and save it again");
    const std::size_t storage = storages_.at(*id[2].string());
    const auto [number, is_new] = numbers_.try_emplace(storage, order_.size());
    if (is_new) order_.push_back(storage);
    const std::array parts = {text("storage"), global(id[1]), text(std::to_string(number->second)),
                              text(id[3].string().value_or("cpu")),
                              build_.integer(*id[4].integer())};
    references_.push_back(build_.persistent_id(build_.tuple(parts)));
    return {};
  }

  // Returns one object for all equal texts, as in torch.save's pickles.
  Cell text(std::string_view content) {
    const auto [known, is_new] = texts_.try_emplace(std::string(content));
    if (is_new) known->second = build_.string(content);
    return known->second;
  }
  Cell global(const Value& type) {
    const auto [known, is_new] =
        types_.try_emplace(std::string(type.module()) + "\n" + std::string(type.name()));
    if (is_new) known->second = build_.global(type.module(), type.name());
    return known->second;
  }

  value::Builder build_;
  std::unordered_map<std::string, Cell> texts_;
  std::unordered_map<std::string, Cell> types_;
  std::unordered_map<std::string_view, std::size_t> storages_;  // of the source, by their keys
  std::unordered_map<std::size_t, std::size_t> numbers_;        // of the former, in the archive
  std::vector<std::size_t> order_;
  std::vector<Cell> references_;
  std::unique_ptr<value::Tree> tree_;
};

Result<void> check_options(const Checkpoint& source, const ConvertOptions& options) {
  if (options.order.empty()) return {};
  const bool is_pickle = source.info().format == Format::pickle;
  return failure(ErrorCode::unsupported,
                 std::string(is_pickle ? "is a bare pickle" : "is a legacy torch stream") +
                     ", which becomes an archive in the order of its pickle; convert it first, and "
                     "then the archive with an order");
}

}  // namespace

Result<ConvertReport> write_legacy_as_archive(const Checkpoint& source,
                                              const std::filesystem::path& to,
                                              const ConvertOptions& options) {
  TRY(check_options(source, options));
  NewReferences references(source);
  TRY(references.collect(source.root()));
  TRY_ASSIGN(const std::vector<std::byte> pickle, references.rewrite(source.root()));

  ConvertReport report;
  report.tensors = source.tensors().size();
  report.alignment = options.alignment.value_or(zip::Layout::default_alignment);
  report.storages = references.storages().size();
  const std::string name = archive_name(to, {});
  TRY_ASSIGN(RecordList list, RecordList::make(name, report.alignment));
  const std::string padding = std::to_string(list.padding());
  std::vector<std::pair<std::string, RecordContent>> records;
  records.emplace_back("data.pkl", RecordContent::bytes(pickle));
  if (RecordList::pads_only(report.alignment))
    records.emplace_back(".format_version", RecordContent::text("1"));
  records.emplace_back(".storage_alignment", RecordContent::text(padding));
  records.emplace_back("byteorder", RecordContent::text("little"));
  const std::size_t head = records.size();
  for (std::size_t index : references.storages())
    records.emplace_back(zip::storage_record(std::to_string(records.size() - head)),
                         stored_content(source, Backing(source).storage(index), 0,
                                        Backing(source).storage(index).nbytes));
  for (std::size_t i = 0; i < records.size(); ++i)
    TRY(i < head ? list.add(records[i].first, records[i].second)
                 : list.add_storage(records[i].first, records[i].second));
  TRY_ASSIGN(report.new_bytes, list.close());
  TRY_ASSIGN(ArchiveWriter archive,
             ArchiveWriter::create(to, {.alignment = list.padding(),
                                        .crc32 = options.crc32.value_or(true),
                                        .archive_name = name,
                                        .file = options.file,
                                        .progress = options.progress}));
  TRY(archive.reserve_space(report.new_bytes));
  TRY(list.write(archive));
  if (source.state() == CheckpointState::modified)
    return failure(ErrorCode::io, "the file was written to while it was copied");
  TRY(archive.finish());
  return report;
}

}  // namespace weightmap
