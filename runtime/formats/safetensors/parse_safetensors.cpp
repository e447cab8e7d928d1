#include "runtime/formats/safetensors/parse_safetensors.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/safetensors/header.hpp"

namespace weightmap::safetensors {
namespace {

using catalog::Catalog;
using format::Parsed;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;

bool is_printable(std::byte byte) noexcept {
  return byte == std::byte{'\n'} || (byte >= std::byte{' '} && byte <= std::byte{'~'});
}

// Returns the end of the header.
Result<std::uint64_t> header_end(format::Input& input, const Limits& limits) {
  const std::uint64_t size = input.file->size();
  // The first read also covers the beginning of the header, which is all of it in most files.
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min(size, input.first_bytes)));
  if (head.size() < length_bytes)
    return failure(ErrorCode::corrupt,
                   "is too short for a safetensors file: it has " + bytes::counted(size, "byte"));
  const auto length = bytes::load_le<std::uint64_t>(head.data());
  if (std::ranges::all_of(head.first(length_bytes), is_printable))
    return failure(ErrorCode::not_a_checkpoint,
                   "begins as text, " +
                       bytes::quote({reinterpret_cast<const char*>(head.data()), head.size()}, 40) +
                       ", and not as a safetensors file");
  const std::string header = "the header of " + bytes::counted(length, "byte");
  if (length > longest_header)
    return failure(ErrorCode::corrupt,
                   header + " is longer than the 100000000 that the format allows", 0);
  if (length > limits.pickle_bytes)
    return failure(ErrorCode::limit_exceeded,
                   header + " is longer than the limit of " + std::to_string(limits.pickle_bytes),
                   0);
  if (!bytes::contains(size, length_bytes, length))
    return failure(ErrorCode::corrupt,
                   "is truncated: " + header + " leaves the file of " + std::to_string(size) +
                       "; the download or copy is incomplete",
                   0);
  return length_bytes + length;
}

// Translates a position in the header to one in the file.
tl::unexpected<Error> in_file(Error error) {
  if (error.file_offset != Error::no_offset) error.file_offset += length_bytes;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Result<Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                     std::pmr::memory_resource& memory) {
  const Clock::time_point began = Clock::now();
  TRY_ASSIGN(const std::uint64_t data_begin, header_end(input, options.limits));
  TRY_ASSIGN(const std::span<const std::byte> text,
             input.cache->bytes(length_bytes, data_begin - length_bytes));
  const Clock::time_point was_read = Clock::now();
  Header header({reinterpret_cast<const char*>(text.data()), text.size()}, memory);
  Result<void> read = read_header(header, input.file->size() - data_begin, options.limits, memory);
  if (!read) return in_file(std::move(read.error()));
  const Clock::time_point was_parsed = Clock::now();
  Parsed parsed(memory);
  header.data_begin = data_begin;
  Result<Catalog> catalog = format::make_catalog(header, memory);
  if (!catalog) return in_file(std::move(catalog.error()));
  parsed.catalog = std::move(*catalog);
  parsed.tree = std::move(header.metadata);
  for (const HeaderTensor& tensor : header.tensors)
    if (!tensor.is_viewable) parsed.facts.unsupported.emplace_back(tensor.name);
  input.release(stats);
  parsed.facts.format = Format::safetensors;
  parsed.facts.byteorder = "little";
  parsed.facts.names_torch_safe_only = true;  // the file names no globals
  parsed.facts.storage_alignment = format::common_alignment(parsed.catalog);
  parsed.facts.pickle_bytes = text.size();
  stats.storages_by_directory += parsed.catalog.size();
  if (parsed.catalog.size() != 0) stats.strategy = OffsetStrategy::directory;
  stats.directory += was_read - began;
  stats.pickle += was_parsed - was_read;
  stats.catalog += Clock::now() - was_parsed;
  return parsed;
}

}  // namespace weightmap::safetensors
