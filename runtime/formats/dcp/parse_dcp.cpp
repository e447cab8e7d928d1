#include "runtime/formats/dcp/parse_dcp.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/assemble.hpp"
#include "runtime/formats/dcp/late_items.hpp"
#include "runtime/formats/dcp/read_items.hpp"
#include "runtime/formats/dcp/values.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::dcp {
namespace {

using format::Parsed;
using Clock = std::chrono::steady_clock;

std::vector<PiecesOf> pieces_of(std::span<const Whole> tensors) {
  std::vector<PiecesOf> all;
  std::uint32_t next = 0;
  for (const Whole& tensor : tensors) {
    const auto count = static_cast<std::uint32_t>(tensor.chunks.size());
    all.push_back({next, count});
    next += count;
  }
  return all;
}

format::LateValues late_values(std::shared_ptr<const Metadata> metadata,
                               std::vector<PiecesOf> pieces) {
  format::LateValues late;
  for (const Object& object : metadata->objects) late.names.emplace_back(object.name);
  late.read = [metadata = std::move(metadata), pieces = std::move(pieces)](
                  std::span<const format::ValueFile> files, const catalog::Catalog& catalog,
                  const OpenOptions& options) {
    std::vector<DataFile> data;
    for (const format::ValueFile& file : files.last(metadata->files.size()))
      data.push_back({file.file, file.shown_name, 0, 0});
    return read_values(*metadata, pieces, data, catalog, options);
  };
  return late;
}

}  // namespace

Proof proof_of(const OpenOptions& options) noexcept {
  return *options.verify == Verify::chain && !*options.zero_copy_only ? Proof::at_first_use
                                                                      : Proof::at_open;
}

Result<Parsed> parse(const std::shared_ptr<Metadata>& all, std::span<const DataFile> files,
                     Proof proof, const OpenOptions& options, OpenStats& stats,
                     std::pmr::memory_resource& memory) {
  const Clock::time_point began = Clock::now();
  Metadata& metadata = *all;
  if (files.size() != metadata.files.size())  // another version was read the second time
    return failure(ErrorCode::io, "the metadata changed: it names " +
                                      std::to_string(metadata.files.size()) + " files, and " +
                                      std::to_string(files.size()) + " are open");
  std::vector<ItemRead> reads = reads_of(metadata);
  const bool is_late = proof == Proof::at_first_use;
  if (is_late)
    for (ItemRead& read : reads) TRY(expect_item(read, files));
  else
    TRY(read_items(reads, files, options, stats));
  const Clock::time_point were_read = Clock::now();
  Parsed parsed(memory);
  const bool is_foreign =
      is_late ? find_foreign_order(reads, files, options, stats) : has_foreign_order(reads);
  if (!is_late) TRY(expect_order(reads, files, is_foreign));
  std::vector<Whole> tensors = wholes(metadata, reads);
  TRY(assemble(tensors, metadata.pickle_bytes, options, memory, parsed));
  parsed.tree = std::move(metadata.trees.front());
  parsed.late = late_values(all, pieces_of(tensors));
  if (is_late) parsed.late_places = late_places(all, tensors, files, options, is_foreign);
  parsed.facts.format = Format::dcp;
  parsed.facts.byteorder =
      is_foreign == (std::endian::native == std::endian::little) ? "big" : "little";
  parsed.facts.storage_alignment = 1;
  parsed.facts.pickle_bytes = metadata.pickle_bytes;
  parsed.facts.names_torch_safe_only = metadata.names_torch_safe_only;
  parsed.facts.unsupported = std::move(metadata.unsupported);
  if (!is_late) stats.storages_by_directory += reads.size();
  if (!is_late && !reads.empty()) stats.strategy = OffsetStrategy::directory;
  stats.pickle += were_read - began;
  stats.catalog += Clock::now() - were_read;
  return parsed;
}

}  // namespace weightmap::dcp
