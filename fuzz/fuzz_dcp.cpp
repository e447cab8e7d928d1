// Uses any bytes as the metadata of a folder of torch.distributed.checkpoint, and others as the
// content of all its files: refused, or each element of each tensor lies in one chunk, within the
// file.
//
// The first four bytes are the length of the metadata; the data follow it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/look.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/pickle_mutator.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/parse_dcp.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "weightmap/named_tensor.hpp"

namespace {

using namespace weightmap;

constexpr std::size_t length_bytes = 4;
constexpr std::uint64_t most_counted = 4096;  // elements of a tensor

struct Parts {
  std::span<const std::byte> metadata;
  std::span<const std::byte> data;
};

Parts parts_of(std::span<const std::byte> input) {
  const std::span<const std::byte> rest = input.subspan(length_bytes);
  const std::size_t length =
      std::min<std::size_t>(bytes::load_le<std::uint32_t>(input.data()), rest.size());
  return {rest.first(length), rest.subspan(length)};
}

void check_metadata(const dcp::Metadata& metadata) {
  fuzz::require(std::ranges::is_sorted(metadata.files), "the files are not sorted");
  fuzz::require(std::ranges::adjacent_find(metadata.files) == metadata.files.end(),
                "a file comes twice");
  for (const std::string& file : metadata.files)
    fuzz::require(sets::stays_below(file), "a file that is not below the metadata");
  for (const dcp::Tensor& tensor : metadata.tensors) {
    fuzz::look_at_text(tensor.name);
    for (const dcp::Chunk& chunk : tensor.chunks) {
      fuzz::require(chunk.item.file < metadata.files.size(), "an item of no file");
      fuzz::require(
          chunk.offsets.size() == tensor.sizes.size() && chunk.sizes.size() == tensor.sizes.size(),
          "a chunk of another rank");
    }
  }
}

// Marks each element; the chunks of `composed` are the parts.
void check_chunks(const catalog::Catalog& catalog, const ComposedTensor& composed) {
  const std::size_t rank = composed.sizes.size();
  std::uint64_t volume = 1;
  for (const std::int64_t size : composed.sizes) {
    volume *= static_cast<std::uint64_t>(size);
    if (volume > most_counted) return;
  }
  std::vector<int> seen(volume);
  for (std::size_t part = 0; part < composed.part_count; ++part) {
    const catalog::Entry& entry = catalog[composed.first_part + part];
    const std::int64_t* const sizes = catalog.dims(entry);
    const std::int64_t* const offsets = composed.offsets.data() + part * rank;
    std::vector<std::int64_t> index(rank, 0);
    while (true) {
      std::int64_t at = 0;
      for (std::size_t dim = 0; dim < rank; ++dim)
        at = at * composed.sizes[dim] + offsets[dim] + index[dim];
      ++seen.at(static_cast<std::size_t>(at));
      std::size_t dim = rank;
      while (dim > 0 && ++index[dim - 1] == sizes[dim - 1]) index[--dim] = 0;
      if (dim == 0) break;
    }
  }
  fuzz::require(std::ranges::count(seen, 1) == static_cast<std::ptrdiff_t>(volume),
                "an element that is not in just one chunk");
}

void check(std::span<const std::byte> input) {
  if (input.size() < length_bytes) return;
  const Parts parts = parts_of(input);
  OpenOptions options = fuzz::small_limits();
  std::pmr::monotonic_buffer_resource memory;
  const bytes::MemorySource pickle(parts.metadata);
  const bytes::MemorySource data(parts.data);
  std::vector<format::Input> inputs;
  inputs.emplace_back(pickle, 0, parts.metadata.size(), memory);
  constexpr std::array<std::string_view, 1> names{".metadata"};
  Result<dcp::Metadata> metadata = dcp::read_metadata(inputs, names, options, memory);
  if (!metadata) return fuzz::check_refusal(metadata.error(), Error::no_offset);
  check_metadata(*metadata);
  const auto known = std::make_shared<dcp::Metadata>(std::move(*metadata));
  std::vector<dcp::DataFile> files(known->files.size(), {&data, "data", 0, 0});
  OpenStats stats;
  const Result<format::Parsed> parsed =
      dcp::parse(known, files, dcp::Proof::at_open, options, stats, memory);
  if (!parsed) return fuzz::check_refusal(parsed.error(), Error::no_offset);
  fuzz::check_catalog(parsed->catalog, parts.data.size());
  for (const ComposedTensor& composed : parsed->composed) check_chunks(parsed->catalog, composed);
  fuzz::look_at(Value(parsed->tree.get(), parsed->tree->root()));
}

std::vector<std::byte> mutate(std::span<const std::byte> input, fuzz::Random& random) {
  std::vector<std::byte> made(input.begin(), input.end());
  if (made.size() < length_bytes || random.once_in(20)) {
    fuzz::mutate_bytes(made);
    return made;
  }
  const Parts parts = parts_of(input);
  std::vector<std::byte> metadata(parts.metadata.begin(), parts.metadata.end());
  std::vector<std::byte> data(parts.data.begin(), parts.data.end());
  if (data.empty() || !random.once_in(4))
    metadata = fuzz::mutate_pickle(metadata, random);
  else
    fuzz::mutate_bytes(data);
  made.clear();
  bytes::ByteSink sink(made);
  sink.u32(metadata.size());
  sink.put(metadata);
  sink.put(data);
  return made;
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(mutate)
