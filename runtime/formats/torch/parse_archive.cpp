#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/make_catalog.hpp"
#include "runtime/formats/torch/parse.hpp"
#include "runtime/formats/torch/repeated_keys.hpp"
#include "runtime/formats/torch/script.hpp"
#include "runtime/formats/torch/tree_walk.hpp"

namespace weightmap::torch {
namespace {

using format::Input;
using format::Parsed;

// Measures consecutive stages.
class Stopwatch {
 public:
  std::chrono::nanoseconds lap() noexcept {
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// The stages of a parse, each of which leaves its result for the next one.
class ArchiveParser {
 public:
  ArchiveParser(Input& input, const OpenOptions& options, OpenStats& stats,
                std::pmr::memory_resource& memory)
      : input_(input), options_(options), stats_(stats), memory_(memory), parsed_(memory) {}

  Result<Parsed> run() && {
    Stopwatch stage;
    TRY(read_archive());
    stats_.directory += stage.lap();
    if (kind_ == ArchiveKind::exported)
      return parse_exported(input_, directory_, std::move(records_), options_, stats_, memory_);
    TRY(read_pickle());
    TRY(judge_globals());
    stats_.pickle = stage.lap();
    TRY(place_tensors());
    stats_.catalog = stage.lap();
    describe();
    return std::move(parsed_);
  }

 private:
  Result<void> read_archive();
  Result<void> check_pickle() const;
  Result<void> read_pickle();
  Result<void> read_script();
  Result<void> judge_globals();
  pickle::ParseLimits parse_limits(std::size_t pickle_bytes) const noexcept;
  Error about_pickle(Error error) const;
  ReadLimits read_limits() const noexcept;
  Result<void> place_tensors();
  Result<void> place_without_repeated_keys();
  Result<void> read_directory_again();
  Result<void> place(std::uint32_t first_mark);
  void describe();

  Input& input_;
  const OpenOptions& options_;
  OpenStats& stats_;
  std::pmr::memory_resource& memory_;
  Parsed parsed_;
  zip::Directory directory_;
  ArchiveKind kind_ = ArchiveKind::saved;
  ScriptPickle script_;    // of ArchiveKind::script
  ScriptClasses classes_;  // likewise
  ArchiveRecords records_{};
  std::uint64_t pickle_offset_ = 0;  // in the file
  bool pickle_is_mapped_ = false;    // it is not deflated
};

Result<void> ArchiveParser::read_archive() {
  bytes::ReadCache& cache = *input_.cache;
  TRY_ASSIGN(directory_, format::take_directory(input_, options_.limits));
  TRY_ASSIGN(kind_, kind_of(directory_));
  if (kind_ != ArchiveKind::exported) TRY(check_pickle());
  // One read covers data.pkl, the small records behind it and the first storage's local header.
  if (const auto head = head_of(directory_)) TRY(cache.bytes(head->offset, head->length));
  TRY_ASSIGN(records_, read_archive_records(directory_, cache, *options_.missing_byte_order));
  return {};
}

Result<void> ArchiveParser::check_pickle() const {
  const zip::Record& pickle = *directory_.find(pickle_record);
  // torch never compresses the pickle; a compressed one could unfold to a thousand times its size.
  const std::uint64_t limit =
      pickle.method == zip::Method::deflated
          ? std::min(options_.limits.pickle_bytes, options_.limits.record_bytes)
          : options_.limits.pickle_bytes;
  if (pickle.size <= limit) return {};
  return failure(ErrorCode::limit_exceeded,
                 "data.pkl has " + std::to_string(pickle.size) + " bytes, the limit is " +
                     std::to_string(limit),
                 pickle.header_offset);
}

pickle::ParseLimits ArchiveParser::parse_limits(std::size_t pickle_bytes) const noexcept {
  return {options_.limits.base_memory + 5 * pickle_bytes, options_.limits.depth};
}

Result<void> ArchiveParser::read_script() {
  TRY_ASSIGN(script_,
             ScriptPickle::read(directory_, *input_.cache, options_.limits.pickle_bytes, memory_));
  bytes::Buffer memory = script_.take_program();
  const std::span<const std::byte> program = memory.span();
  Result<std::unique_ptr<value::Tree>> tree = pickle::parse(
      std::move(memory), program, 0, parse_limits(program.size()), memory_, script_.parts());
  if (!tree) return tl::unexpected<Error>(script_.about_record(std::move(tree.error())));
  parsed_.tree = std::move(*tree);
  TRY_ASSIGN(classes_,
             ScriptClasses::read(directory_, *parsed_.tree, *input_.cache, options_.limits));
  return {};
}

Error ArchiveParser::about_pickle(Error error) const {
  return kind_ == ArchiveKind::script ? script_.about_record(std::move(error))
                                      : in_pickle(std::move(error)).value();
}

Result<void> ArchiveParser::read_pickle() {
  if (kind_ == ArchiveKind::script) return read_script();
  const zip::Record& record = *directory_.find(pickle_record);
  TRY_ASSIGN(zip::RecordBytes content,
             zip::read_record(directory_, record, *input_.cache, options_.limits.pickle_bytes));
  pickle_offset_ = content.file_offset;
  const std::span<const std::byte> pickle = content.bytes;
  pickle_is_mapped_ = record.method == zip::Method::stored;
  bytes::Buffer memory = std::move(content).release(*input_.cache);
  Result<std::unique_ptr<value::Tree>> tree = pickle::parse(
      std::move(memory), pickle, pickle_offset_, parse_limits(pickle.size()), memory_);
  if (!tree) return in_pickle(std::move(tree.error()));
  parsed_.tree = std::move(*tree);
  return {};
}

Result<void> ArchiveParser::judge_globals() {
  Result<bool> all_safe =
      check_globals(*parsed_.tree, pickle_offset_, options_, kind_ == ArchiveKind::script);
  if (!all_safe) return tl::unexpected<Error>(about_pickle(std::move(all_safe.error())));
  parsed_.facts.names_torch_safe_only = *all_safe;
  return {};
}

Result<void> ArchiveParser::place_tensors() {
  Result<void> placed = place(0);
  return placed || !is_key_twice(placed.error()) ? placed : place_without_repeated_keys();
}

// Places the tensors of dicts as Python reads them.
Result<void> ArchiveParser::place_without_repeated_keys() {
  TRY_ASSIGN(parsed_.facts.duplicate_keys, drop_repeated_keys(*parsed_.tree, read_limits()));
  if (input_.cache) input_.release(stats_);
  TRY(read_directory_again());
  return place(mark_after_repeated_keys);
}

Result<void> ArchiveParser::read_directory_again() {
  input_.cache.emplace(*input_.file, memory_);
  TRY_ASSIGN(directory_, format::read_directory(*input_.file, *input_.cache, options_.limits));
  return {};
}

ReadLimits ArchiveParser::read_limits() const noexcept {
  return {pickle_offset_, options_.limits, kind_ == ArchiveKind::script ? &classes_ : nullptr,
          pickle_is_mapped_ ? Arrays::mapped : Arrays::none};
}

Result<void> ArchiveParser::place(std::uint32_t first_mark) {
  // One block for all tables that live only until the catalog is made: 130 bytes for each tensor.
  std::pmr::monotonic_buffer_resource tables(4096 + parsed_.tree->packed_count() * 130, &memory_);
  Result<TensorTable> tensors = read_tensors(*parsed_.tree, read_limits(), tables, first_mark);
  if (!tensors) return tl::unexpected<Error>(about_pickle(std::move(tensors.error())));
  TensorTable table = std::move(*tensors);
  TRY_ASSIGN(PlacedStorages storages, place_storages(directory_, table.storages.storages(),
                                                     records_, input_, options_, stats_, tables));
  parsed_.compressed = std::move(storages.compressed);
  // Freed before the catalog allocates its own memory.
  input_.release(stats_);
  directory_ = zip::Directory();
  stats_.cache_hits = table.storages.cache_hits();
  Result<catalog::Catalog> made =
      make_catalog({*parsed_.tree, table, storages.extents, records_.is_foreign(), pickle_offset_,
                    input_.copies_base},
                   memory_);
  if (!made && kind_ == ArchiveKind::script)
    return tl::unexpected<Error>(script_.about_record(std::move(made.error())));
  TRY_ASSIGN(parsed_.catalog, std::move(made));
  keep_nodes(table, parsed_.nodes);
  parsed_.composed = std::move(table.composed);
  return {};
}

void ArchiveParser::describe() {
  CheckpointInfo& facts = parsed_.facts;
  facts.format = kind_ == ArchiveKind::script ? Format::torchscript : Format::torch_zip;
  facts.version = records_.version;
  facts.format_version = records_.format_version;
  facts.byteorder = records_.big_endian ? "big" : "little";
  facts.byteorder_assumed = records_.byte_order_assumed;
  facts.storage_alignment = records_.storage_alignment;
  facts.reserved = std::move(records_.reserved);
  facts.pickle_bytes = parsed_.tree->pickle().size();
}

Result<void> verify_header(const bytes::ByteSource& file, const zip::Directory& directory,
                           const std::string& name, const std::uint64_t* expected) {
  const zip::Record* record = directory.find(name);
  if (record == nullptr)
    return failure(ErrorCode::corrupt, "record " + bytes::quote(name) +
                                           " has gone from the directory since the file "
                                           "was opened");
  TRY_ASSIGN(const std::uint64_t payload,
             zip::read_local_header(file, *record, directory.limit_of(*record)));
  if (expected == nullptr || payload == *expected) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(name) + " begins at byte " + std::to_string(payload) +
                     " by its local header, " + std::to_string(*expected) + " was expected",
                 record->header_offset);
}

}  // namespace

Result<Parsed> parse_archive(Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory) {
  return ArchiveParser(input, options, stats, memory).run();
}

Result<void> verify_archive_headers(Input& input, const catalog::Catalog& catalog,
                                    const Limits& limits) {
  TRY_ASSIGN(const zip::Directory directory,
             format::read_directory(*input.file, *input.cache, limits));
  for (const catalog::StorageEntry& storage : catalog.storages()) {
    if (catalog.text(storage.key).starts_with(array_folder)) continue;  // has no header
    const std::string name = zip::storage_record(catalog.text(storage.key));
    // An inflated storage is not at its place in the file.
    const std::uint64_t* const expected = storage.source == 0 ? &storage.position : nullptr;
    TRY(verify_header(*input.file, directory, name, expected));
  }
  return {};
}

}  // namespace weightmap::torch
