#include "runtime/formats/gguf/parse_gguf.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/gguf/field_reader.hpp"
#include "runtime/formats/gguf/metadata.hpp"
#include "runtime/formats/gguf/tensor_types.hpp"

namespace weightmap::gguf {
namespace {

using format::ListedTensor;

// ggml as llama.cpp builds it keeps 64 with a NUL, stable-diffusion.cpp 128, gguf-py any number.
constexpr std::uint64_t longest_name = 1024;
constexpr std::size_t most_rank = 4;        // GGML_MAX_DIMS
constexpr std::uint64_t least_pair = 14;    // bytes: a key of one byte and a value of one
constexpr std::uint64_t least_tensor = 24;  // bytes: without name and dimensions

// Computes the next multiple of a power of two; returns false if it does not fit 64 bits.
bool round_up(std::uint64_t number, std::uint32_t alignment, std::uint64_t& rounded) noexcept {
  if (!bytes::checked_add<std::uint64_t>(number, alignment - 1, &rounded)) return false;
  rounded &= ~std::uint64_t{alignment - 1};
  return true;
}

// The header: counts, metadata, and the description of each tensor. data_begin is the next multiple
// of the alignment behind `end`; names point into a window, and positions are offsets in the file.
struct Header : format::TensorList {
  using TensorList::TensorList;

  std::uint32_t version = 0;
  Metadata metadata;
  std::uint64_t end = 0;           // of the descriptions
  std::uint64_t data_bytes = 0;    // with the padding between tensors, without that behind the last
  std::uint64_t unread_bytes = 0;  // behind the data
};

// Reads the header, and proves for each tensor that its bytes fit its type and shape, begin where
// those of the previous tensor end, and lie in the file. make_catalog() checks for repeated names.
class HeaderReader {
 public:
  HeaderReader(Header& header, bytes::ReadCache& cache, const Limits& limits,
               std::pmr::memory_resource& memory)
      : header_(header),
        limits_(limits),
        memory_(memory),
        file_bytes_(cache.source_size()),
        reader_(cache, limits.pickle_bytes) {}

  Result<void> run() {
    if (read_all()) return {};
    return tl::unexpected<Error>(std::move(reader_.error()));
  }

 private:
  bool read_all() {
    std::uint64_t pairs = 0;
    if (!read_magic() || !read_version() || !read_counts(pairs)) return false;
    if (!read_metadata(reader_, pairs, limits_, memory_, header_.metadata)) return false;
    header_.tensors.reserve(tensors_);
    for (std::uint64_t i = 0; i < tensors_; ++i)
      if (!read_tensor()) return about_tensor(i);
    return place_data();
  }
  bool read_magic();
  bool read_version();
  bool read_count(std::uint64_t& count, std::string_view field);
  bool read_counts(std::uint64_t& pairs);
  bool read_tensor();
  bool read_name(ListedTensor& tensor);
  bool read_sizes(ListedTensor& tensor);
  bool add_shape(const ListedTensor& tensor, std::uint64_t at);
  bool read_type(ListedTensor& tensor);
  bool measure(const ListedTensor& tensor, std::uint64_t at);
  bool read_offset(ListedTensor& tensor);
  bool place_data();
  bool check_rest();
  // Returns "ne [4096, 32]".
  std::string sizes_text(std::size_t rank) const {
    return "ne " + bytes::listed(std::span(sizes_).first(rank));
  }
  bool corrupt(std::string message, std::uint64_t at) {
    return reader_.fail(ErrorCode::corrupt, std::move(message), at);
  }
  [[gnu::cold]] bool about_tensor(std::uint64_t number);

  Header& header_;
  const Limits& limits_;
  std::pmr::memory_resource& memory_;
  std::uint64_t file_bytes_;
  FieldReader reader_;
  std::uint64_t tensors_ = 0;
  std::string_view name_;                        // of the current tensor; empty: not known yet
  std::array<std::int64_t, most_rank> sizes_{};  // of the current tensor, the fastest first
  std::uint64_t nbytes_ = 0;                     // of the current tensor
  std::uint64_t next_begin_ = 0;                 // the required place of the next tensor's bytes
};

bool HeaderReader::read_magic() {
  std::array<char, 4> magic{};
  for (char& byte : magic)
    if (!reader_.number(byte, "the magic number")) return false;
  return std::string_view(magic.data(), magic.size()) == "GGUF" ||
         reader_.fail(ErrorCode::not_a_checkpoint, "does not begin with GGUF", 0);
}

bool HeaderReader::read_version() {
  const std::uint64_t at = reader_.position();
  std::uint32_t version = 0;
  if (!reader_.number(version, "the version")) return false;
  // Like ggml: in the other byte order, the low half of a small number is 0.
  if (version != 0 && (version & 0xFFFF) == 0) {
    header_.is_big_endian = true;
    reader_.set_big_endian(true);
    version = __builtin_bswap32(version);
  }
  header_.version = version;
  if (version == 2 || version == 3) return true;
  return reader_.fail(version == 0 ? ErrorCode::corrupt : ErrorCode::unsupported,
                      "has GGUF version " + std::to_string(version) + ", expected 2 or 3", at);
}

bool HeaderReader::read_count(std::uint64_t& count, std::string_view field) {
  const std::uint64_t at = reader_.position();
  std::int64_t number = 0;
  if (!reader_.number(number, field)) return false;
  if (number < 0)
    return corrupt(std::string(field) + " is " + std::to_string(number) + ", expected 0 or more",
                   at);
  count = static_cast<std::uint64_t>(number);
  return true;
}

bool HeaderReader::read_counts(std::uint64_t& pairs) {
  const std::uint64_t at = reader_.position();
  if (!read_count(tensors_, "the number of tensors") ||
      !read_count(pairs, "the number of metadata keys"))
    return false;
  if (!reader_.has_room_for(tensors_, least_tensor, "the list", "tensors") ||
      !reader_.has_room_for(pairs, least_pair, "the list", "metadata keys"))
    return false;
  if (tensors_ > limits_.tensors)
    return reader_.fail(ErrorCode::limit_exceeded,
                        "the file has " + std::to_string(tensors_) +
                            " tensors, more than the limit of " + std::to_string(limits_.tensors),
                        at);
  return true;
}

bool HeaderReader::read_tensor() {
  name_ = {};
  ListedTensor tensor{};
  tensor.is_viewable = true;
  tensor.position = reader_.position();
  if (!read_name(tensor) || !read_sizes(tensor)) return false;
  const std::uint64_t type_at = reader_.position();
  if (!read_type(tensor) || !measure(tensor, type_at) || !read_offset(tensor)) return false;
  header_.tensors.push_back(tensor);
  return true;
}

bool HeaderReader::read_name(ListedTensor& tensor) {
  if (!reader_.text(tensor.name, "the name", longest_name)) return false;
  if (!bytes::is_utf8(tensor.name))
    return corrupt("the name " + bytes::quote(tensor.name) + " is not UTF-8", tensor.position);
  if (tensor.name.find('\0') != tensor.name.npos)
    return corrupt("the name " + bytes::quote(tensor.name) + " has a NUL in it, where ggml ends it",
                   tensor.position);
  name_ = tensor.name;
  return true;
}

bool HeaderReader::read_sizes(ListedTensor& tensor) {
  const std::uint64_t at = reader_.position();
  std::uint32_t rank = 0;
  if (!reader_.number(rank, "the number of dimensions")) return false;
  if (!reader_.has_room_for(rank, sizeof(std::int64_t), "the shape", "sizes")) return false;
  if (rank > most_rank)
    return corrupt("it has " + std::to_string(rank) + " dimensions, more than the 4 that ggml has",
                   at);
  if (rank > limits_.rank)
    return reader_.fail(ErrorCode::limit_exceeded,
                        "it has " + std::to_string(rank) + " dimensions, more than the limit of " +
                            std::to_string(limits_.rank),
                        at);
  for (std::uint32_t i = 0; i < rank; ++i) {
    const std::uint64_t size_at = reader_.position();
    if (!reader_.number(sizes_[i], "a size")) return false;
    if (sizes_[i] < 0)
      return corrupt(
          "ne[" + std::to_string(i) + "] is " + std::to_string(sizes_[i]) + ", expected 0 or more",
          size_at);
  }
  tensor.rank = static_cast<std::uint8_t>(rank);
  tensor.first_dim = static_cast<std::uint32_t>(header_.dims.size());
  return add_shape(tensor, at + sizeof rank);
}

// The fastest size is the last in a shape, and the first in the file.
bool HeaderReader::add_shape(const ListedTensor& tensor, std::uint64_t at) {
  std::pmr::vector<std::int64_t>& dims = header_.dims;
  dims.resize(dims.size() + std::size_t{2} * tensor.rank);
  std::int64_t* const shape = dims.data() + tensor.first_dim;
  std::int64_t* const strides = shape + tensor.rank;
  std::reverse_copy(sizes_.begin(), sizes_.begin() + tensor.rank, shape);
  if (bytes::row_major_strides({shape, tensor.rank}, {strides, tensor.rank})) return true;
  return corrupt(sizes_text(tensor.rank) + " are more than 2^63 - 1 elements", at);
}

bool HeaderReader::read_type(ListedTensor& tensor) {
  const std::uint64_t at = reader_.position();
  std::int32_t number = 0;
  if (!reader_.number(number, "the type")) return false;
  Result<DType> dtype = tensor_type(number);
  if (!dtype) return reader_.fail(dtype.error().code, std::move(dtype.error().message), at);
  tensor.dtype = *dtype;
  return true;
}

bool HeaderReader::measure(const ListedTensor& tensor, std::uint64_t at) {
  const Block block = block_of(tensor.dtype);
  const std::int64_t* const shape = header_.dims.data() + tensor.first_dim;
  const std::int64_t row = tensor.rank == 0 ? 1 : sizes_[0];
  if (row % block.elements != 0)
    return corrupt("ne[0] is " + std::to_string(row) + ", expected a multiple of the " +
                       std::to_string(block.elements) + " elements in a block of " +
                       std::string(to_string(tensor.dtype)),
                   at);
  std::uint64_t elements = 1;  // at most the product without zeros, which fits
  for (std::size_t i = 0; i < tensor.rank; ++i) elements *= static_cast<std::uint64_t>(shape[i]);
  if (bytes::checked_mul<std::uint64_t>(elements / block.elements, block.bytes, &nbytes_))
    return true;
  return corrupt(sizes_text(tensor.rank) + " of " + std::string(to_string(tensor.dtype)) +
                     " are more than 2^64 - 1 bytes",
                 at);
}

bool HeaderReader::read_offset(ListedTensor& tensor) {
  const std::uint64_t at = reader_.position();
  const std::uint32_t alignment = header_.metadata.alignment;
  if (!reader_.number(tensor.begin, "the offset")) return false;
  if (tensor.begin != next_begin_)
    return corrupt("the offset is " + std::to_string(tensor.begin) + ", expected " +
                       std::to_string(next_begin_) +
                       ", where the tensors before it end with an alignment of " +
                       std::to_string(alignment),
                   at);
  if (!bytes::checked_add(tensor.begin, nbytes_, &header_.data_bytes) ||
      !round_up(header_.data_bytes, alignment, next_begin_))
    return corrupt("the tensors up to it have more than 2^64 - 1 bytes", at);
  tensor.end = header_.data_bytes;
  return true;
}

bool HeaderReader::place_data() {
  const std::uint32_t alignment = header_.metadata.alignment;
  std::uint64_t end = 0;
  header_.end = reader_.position();
  if (round_up(header_.end, alignment, header_.data_begin) &&
      (header_.tensors.empty() ||
       bytes::contains(file_bytes_, header_.data_begin, header_.data_bytes))) {
    if (round_up(header_.data_begin + header_.data_bytes, alignment, end) && end < file_bytes_)
      header_.unread_bytes = file_bytes_ - end;
    return check_rest();
  }
  return corrupt("is truncated: the tensors of " + bytes::counted(header_.data_bytes, "byte") +
                     " from byte " + std::to_string(header_.data_begin) + " on leave the file of " +
                     std::to_string(file_bytes_) + "; the download or copy is incomplete",
                 file_bytes_);
}

// Some writers set an alignment in the first shard only, but use it in all; the tensors of the
// others are then not at their stated places, and bytes are left over.
bool HeaderReader::check_rest() {
  if (header_.unread_bytes == 0 || !header_.metadata.split) return true;
  return corrupt("the file has " + bytes::counted(header_.unread_bytes, "byte") +
                     " behind its last tensor, which a shard may not have: its tensors are "
                     "probably not where it says, with an alignment of " +
                     std::to_string(header_.metadata.alignment),
                 file_bytes_ - header_.unread_bytes);
}

bool HeaderReader::about_tensor(std::uint64_t number) {
  std::string subject = "tensor " + std::to_string(number);
  if (!name_.empty()) subject += " " + bytes::quote(name_);
  reader_.error().message.insert(0, subject + ": ");
  return false;
}

}  // namespace

Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  Header header(memory);
  TRY(HeaderReader(header, *input.cache, options.limits, memory).run());
  const Clock::time_point was_read = Clock::now();
  format::Parsed parsed(memory);
  TRY_ASSIGN(parsed.catalog, format::make_catalog(header, memory));
  input.release(stats);
  parsed.tree = std::move(header.metadata.tree);
  parsed.split = header.metadata.split;
  parsed.facts.format = Format::gguf;
  parsed.facts.version = header.version;
  parsed.facts.byteorder = header.is_big_endian ? "big" : "little";
  parsed.facts.names_torch_safe_only = true;  // the file names no globals
  parsed.facts.storage_alignment = header.metadata.alignment;
  parsed.facts.pickle_bytes = header.end;
  parsed.facts.unread_bytes = header.unread_bytes;
  stats.storages_by_directory += parsed.catalog.size();
  if (parsed.catalog.size() != 0) stats.strategy = OffsetStrategy::directory;
  stats.pickle += was_read - began;
  stats.catalog += Clock::now() - was_read;
  return parsed;
}

}  // namespace weightmap::gguf
