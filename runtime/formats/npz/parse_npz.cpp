#include "runtime/formats/npz/parse_npz.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/format/compressed_storages.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/npz/array.hpp"

namespace weightmap::npz {
namespace {

using format::Input;
using format::Parsed;
using Clock = std::chrono::steady_clock;

constexpr std::string_view extension = ".npy";
constexpr std::uint32_t numpy_most_dims = 64;  // of numpy

bool is_named_as_array(const zip::Record& record) noexcept {
  return record.full_name().ends_with(extension);
}

// `begin`: where the array begins, if the file has it as it is.
tl::unexpected<Error> about(const zip::Record& record, std::uint64_t begin, Error error) {
  error.message = "record " + bytes::quote(record.full_name()) + ": " + error.message;
  const bool is_in_file =
      record.method == zip::Method::stored && error.file_offset != Error::no_offset;
  error.file_offset = begin + (is_in_file ? error.file_offset : 0);
  return tl::unexpected<Error>(std::move(error));
}

Result<ArrayHeader> read_array_header(std::span<const std::byte> front, std::uint64_t array_bytes,
                                      const Limits& limits) {
  TRY_ASSIGN(const std::uint64_t length,
             header_length(front.first(std::min(front.size(), preamble_bytes))));
  if (length > array_bytes)
    return failure(ErrorCode::corrupt,
                   "has a header of " + bytes::counted(length, "byte") + " and only " +
                       bytes::counted(array_bytes, "byte") + " in all",
                   0);
  return read_header(front.first(length), std::min(limits.rank, numpy_most_dims));
}

// Makes the catalog, and says what is known of the file.
Result<void> finish(const format::TensorList& list, Format kind, std::uint64_t header_bytes,
                    std::pmr::memory_resource& memory, Parsed& parsed) {
  TRY_ASSIGN(parsed.catalog, format::make_catalog(list, memory));
  TRY_ASSIGN(parsed.tree, value::empty_dict(memory));
  CheckpointInfo& facts = parsed.facts;
  facts.format = kind;
  facts.byteorder = "little";
  facts.names_torch_safe_only = true;  // it names none
  facts.storage_alignment = format::common_alignment(parsed.catalog);
  facts.pickle_bytes = header_bytes;
  return {};
}

class Parser {
 public:
  Parser(Input& input, const OpenOptions& options, OpenStats& stats,
         std::pmr::memory_resource& memory)
      : input_(input),
        options_(options),
        stats_(stats),
        memory_(memory),
        list_(memory),
        parsed_(memory) {}

  Result<Parsed> run() && {
    const Clock::time_point began = Clock::now();
    TRY(read_directory());
    TRY(place_records());
    const Clock::time_point were_placed = Clock::now();
    for (const zip::StorageExtent& extent : extents_) TRY(add_tensor(extent));
    const Clock::time_point were_read = Clock::now();
    TRY(finish(list_, Format::npz, header_bytes_, memory_, parsed_));
    input_.release(stats_);
    stats_.directory += were_placed - began;
    stats_.pickle += were_read - were_placed;
    stats_.catalog += Clock::now() - were_read;
    return std::move(parsed_);
  }

 private:
  struct Member {
    ArrayHeader header;
    std::uint32_t front_crc32;  // of the header
  };

  Result<void> read_directory();
  Result<void> announce_headers() const;
  Result<void> place_records();
  Result<void> add_tensor(const zip::StorageExtent& extent);
  Result<Member> read_member(const zip::Record& record, std::uint64_t payload);
  Result<Member> read_member(const zip::Record& record, std::uint64_t payload,
                             std::span<const std::byte> front) const;
  void leave_out(std::string_view name, std::string_view why);

  Input& input_;
  const OpenOptions& options_;
  OpenStats& stats_;
  std::pmr::memory_resource& memory_;
  zip::Directory directory_;
  std::vector<zip::StorageExtent> extents_;  // of the records: where they lie, or will lie
  std::vector<std::uint64_t> payloads_;      // of the records, in the file
  std::uint64_t header_bytes_ = 0;           // of all arrays
  format::TensorList list_;
  Parsed parsed_;
};

Result<void> Parser::read_directory() {
  TRY_ASSIGN(directory_, format::take_directory(input_, options_.limits));
  if (directory_.records().size() > options_.limits.tensors)
    return failure(ErrorCode::limit_exceeded,
                   "the archive has " + bytes::counted(directory_.records().size(), "record") +
                       ", more than the limit of " + std::to_string(options_.limits.tensors));
  return {};
}

// Each array has two headers in front, that of its record and its own.
Result<void> Parser::announce_headers() const {
  constexpr std::uint64_t usual_bytes = 512;
  std::vector<ByteRange> headers;
  for (const zip::Record& record : directory_.records())
    if (is_named_as_array(record))
      headers.push_back({record.header_offset, std::min(usual_bytes, directory_.limit_of(record) -
                                                                         record.header_offset)});
  return input_.file->will_read(headers);
}

// numpy's zip writer follows no rule by which a record's place could be calculated.
Result<void> Parser::place_records() {
  TRY(announce_headers());
  for (const zip::Record& record : directory_.records()) {
    const auto number = static_cast<std::uint32_t>(&record - directory_.records().data());
    payloads_.push_back(0);
    if (!is_named_as_array(record)) {
      if (!record.full_name().ends_with('/')) leave_out(record.full_name(), "no .npy array");
      continue;
    }
    TRY_ASSIGN(const std::uint64_t payload,
               zip::read_local_header(*input_.file, record, directory_.limit_of(record)));
    extents_.push_back({payload, record.size, record.crc32, number});
    payloads_.back() = payload;
    ++stats_.reads;
    stats_.bytes_read += zip::local_header_length(record);
  }
  stats_.local_headers_read += extents_.size();
  stats_.storages_by_header += extents_.size();
  if (!extents_.empty()) stats_.strategy = OffsetStrategy::headers;
  TRY_ASSIGN(parsed_.compressed,
             format::place_compressed(directory_, extents_, options_.limits, input_.copies_base));
  return {};
}

// `front`: the first bytes of the array, with all of its header.
Result<Parser::Member> Parser::read_member(const zip::Record& record, std::uint64_t payload,
                                           std::span<const std::byte> front) const {
  Result<ArrayHeader> header = read_array_header(front, record.size, options_.limits);
  if (!header) return about(record, payload, std::move(header.error()));
  const std::uint32_t sum = zip::crc32(front.first(header->length));
  return Member{std::move(*header), sum};
}

Result<Parser::Member> Parser::read_member(const zip::Record& record, std::uint64_t payload) {
  if (record.method == zip::Method::deflated) {
    // The elements are inflated once more, to where they are mapped: libdeflate gives no beginning.
    bytes::ReadCache cache(*input_.file, *std::pmr::new_delete_resource());
    TRY_ASSIGN(const zip::RecordBytes content,
               zip::read_record(directory_, record, cache, record.size));
    stats_.reads += cache.reads();
    stats_.bytes_read += cache.bytes_read();
    return read_member(record, payload, content.bytes);
  }
  // One read gets the header of any usual array.
  constexpr std::uint64_t usual_bytes = 256;
  std::vector<std::byte> front(std::min(record.size, usual_bytes));
  TRY(input_.file->read(payload, front));
  const Result<std::uint64_t> length =
      header_length(std::span(front).first(std::min(front.size(), preamble_bytes)));
  ++stats_.reads;
  if (length && *length > front.size() && *length <= record.size) {
    front.resize(*length);
    TRY(input_.file->read(payload, front));
    ++stats_.reads;
  }
  stats_.bytes_read += front.size();
  return read_member(record, payload, front);
}

void Parser::leave_out(std::string_view name, std::string_view why) {
  parsed_.facts.unsupported.push_back(std::string(name) + " (" + std::string(why) + ")");
}

Result<void> Parser::add_tensor(const zip::StorageExtent& extent) {
  const zip::Record& record = directory_.records()[extent.record];
  const std::uint64_t payload = payloads_[extent.record];
  TRY_ASSIGN(const Member member, read_member(record, payload));
  const ArrayHeader& header = member.header;
  const std::string_view name = record.full_name().substr(0, record.name_length - extension.size());
  header_bytes_ += header.length;
  if (!header.foreign_type.empty()) {
    leave_out(name, header.foreign_type);
    return {};
  }
  Result<format::ListedTensor> made = list_array(name, header, options_, list_);
  if (!made) return about(record, record.header_offset, std::move(made.error()));
  format::ListedTensor& tensor = *made;
  const std::uint64_t found = record.size - header.length;
  if (tensor.end != found)
    return about(record, record.header_offset,
                 {ErrorCode::corrupt, "has " + bytes::counted(found, "byte") +
                                          " behind its header, the field \"shape\" says " +
                                          std::to_string(tensor.end)});
  tensor.begin = extent.payload_offset + header.length;
  tensor.end = extent.payload_offset + record.size;
  tensor.position = payload;
  tensor.crc32 = record.crc32 == 0 ? 0
                                   : zip::crc32_behind(member.front_crc32, record.crc32,
                                                       tensor.end - tensor.begin);
  tensor.source = record.method == zip::Method::deflated ? 1 : 0;
  list_.tensors.push_back(tensor);
  return {};
}

Result<ArrayHeader> read_array_header(Input& input, const OpenOptions& options) {
  const std::uint64_t size = input.file->size();
  TRY_ASSIGN(const std::span<const std::byte> front,
             input.cache->bytes(0, std::min<std::uint64_t>(size, preamble_bytes)));
  TRY_ASSIGN(const std::uint64_t length, header_length(front));
  if (length > size)
    return failure(ErrorCode::corrupt,
                   "is truncated: the header of the array has " + bytes::counted(length, "byte") +
                       ", the file " + std::to_string(size),
                   size);
  TRY_ASSIGN(const std::span<const std::byte> header, input.cache->bytes(0, length));
  TRY_ASSIGN(ArrayHeader read, read_header(header, std::min(options.limits.rank, numpy_most_dims)));
  if (read.foreign_type.empty()) return read;
  return failure(ErrorCode::unsupported, "the field \"descr\" " + read.foreign_reason);
}

}  // namespace

bool is_archive(const zip::Directory& directory) {
  if (directory.find("data.pkl") != nullptr || directory.find("archive_format") != nullptr ||
      !format::name_archive(directory).empty())
    return false;
  return std::ranges::any_of(directory.records(), is_named_as_array);
}

Result<Parsed> parse(Input& input, const OpenOptions& options, OpenStats& stats,
                     std::pmr::memory_resource& memory) {
  return Parser(input, options, stats, memory).run();
}

Result<void> verify_headers(Input& input, const catalog::Catalog& catalog, const Limits& limits) {
  OpenOptions options;
  options.limits = limits;
  OpenStats not_of_the_open;
  std::pmr::unsynchronized_pool_resource memory;
  TRY_ASSIGN(const Parsed now, parse(input, options, not_of_the_open, memory));
  // Inflated storages lie behind the file, in the order of the open.
  if (std::ranges::equal(catalog.storages(), now.catalog.storages(),
                         [&](const auto& known, const auto& found) {
                           return known.nbytes == found.nbytes && known.source == found.source &&
                                  (known.source != 0 || known.position == found.position) &&
                                  catalog.text(known.key) == now.catalog.text(found.key);
                         }))
    return {};
  return failure(ErrorCode::corrupt, "its arrays are others than when the file was opened");
}

Result<Parsed> parse_npy(Input& input, const OpenOptions& options, OpenStats& stats,
                         std::pmr::memory_resource& memory) {
  Parsed parsed(memory);
  TRY_ASSIGN(const ArrayHeader header, read_array_header(input, options));
  format::TensorList list(memory);
  TRY_ASSIGN(format::ListedTensor tensor, list_array("arr_0", header, options, list));
  const std::uint64_t nbytes = tensor.end;
  const std::uint64_t found = input.file->size() - header.length;
  if (nbytes > found)
    return failure(ErrorCode::corrupt,
                   "is truncated: the field \"shape\" says " + bytes::counted(nbytes, "byte") +
                       " behind the header, the file has " + std::to_string(found) +
                       "; the download or copy is incomplete",
                   input.file->size());
  list.data_begin = header.length;
  list.tensors.push_back(tensor);
  TRY(finish(list, Format::npy, header.length, memory, parsed));
  parsed.facts.unread_bytes = found - nbytes;
  ++stats.storages_by_directory;
  stats.strategy = OffsetStrategy::directory;
  input.release(stats);
  return parsed;
}

}  // namespace weightmap::npz
