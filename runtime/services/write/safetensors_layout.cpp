#include "runtime/services/write/safetensors_layout.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/json/json_text.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/safetensors/element_types.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::size_t length_bytes = 8;
constexpr std::size_t most_header_bytes = 100'000'000;

tl::unexpected<Error> refuse(const SafetensorsTensor& tensor, const std::string& why,
                             ErrorCode code = ErrorCode::invalid_argument) {
  return failure(code, "the tensor " + bytes::quote(tensor.name) + " " + why);
}

// Returns the factor of the last dimension: the format counts single elements of packed types.
std::uint64_t elements_in_one(const SafetensorsTensor& tensor) noexcept {
  return safetensors::type_of(tensor.dtype)->bits == 4 ? 2 : 1;
}

std::uint64_t dim_in_file(const SafetensorsTensor& tensor, std::size_t dim) noexcept {
  const bool is_last = dim + 1 == tensor.shape.size();
  return static_cast<std::uint64_t>(tensor.shape[dim]) * (is_last ? elements_in_one(tensor) : 1);
}

// Returns nullopt if the bits exceed 64 bits, in the order in which readers multiply.
std::optional<std::uint64_t> bits_of_shape(const SafetensorsTensor& tensor) noexcept {
  std::uint64_t bits = 1;
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim)
    if (!bytes::checked_mul(bits, dim_in_file(tensor, dim), &bits)) return std::nullopt;
  const std::uint64_t element = safetensors::type_of(tensor.dtype)->bits;
  if (!bytes::checked_mul(bits, element, &bits)) return std::nullopt;
  return bits;
}

void append_tensor(std::string& out, const SafetensorsTensor& tensor, std::uint64_t begin) {
  json::append_string(out, tensor.name);
  ((out += ":{\"dtype\":\"") += safetensors::type_of(tensor.dtype)->name) += "\",\"shape\":[";
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim)
    (out += dim == 0 ? "" : ",") += std::to_string(dim_in_file(tensor, dim));
  out += "],\"data_offsets\":[" + std::to_string(begin) + "," +
         std::to_string(begin + tensor.content.size()) + "]}";
}

void append_metadata(std::string& out, const SafetensorsMetadata& metadata) {
  out += "\"__metadata__\":{";
  for (const auto& [key, text] : metadata) {
    if (&key != &metadata.front().first) out += ',';
    json::append_string(out, key);
    out += ':';
    json::append_string(out, text);
  }
  out += '}';
}

// Blocked types have no alignment and come last.
std::size_t alignment_of(DType dtype) noexcept {
  return is_blocked(dtype) ? 0 : element_size(dtype);
}

// Sorts so that all tensors are aligned without holes; see the public header.
void sort_by_alignment(std::span<const SafetensorsTensor> tensors,
                       std::vector<std::size_t>& members) {
  const auto is_multiple = [&](std::size_t member) {
    return tensors[member].content.size() % alignment == 0;
  };
  const auto rest = std::stable_partition(members.begin(), members.end(), is_multiple);
  std::sort(rest, members.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t a_size = alignment_of(tensors[a].dtype);
    const std::size_t b_size = alignment_of(tensors[b].dtype);
    return std::tie(b_size, tensors[a].name) < std::tie(a_size, tensors[b].name);
  });
}

void append_length(std::string& out, std::uint64_t length) {
  for (std::size_t i = 0; i < length_bytes; ++i) out += static_cast<char>(length >> (8 * i));
}

}  // namespace

Result<void> check_tensor(const SafetensorsTensor& tensor) {
  if (!bytes::is_utf8(tensor.name)) return refuse(tensor, "has a name that is not UTF-8");
  if (tensor.name == "__metadata__")
    return refuse(tensor, "has the name that the format keeps for the metadata");
  if (safetensors::type_of(tensor.dtype) == nullptr)
    return refuse(tensor,
                  "is of " + std::string(to_string(tensor.dtype)) + ", which safetensors has not",
                  ErrorCode::unsupported);
  if (std::ranges::any_of(tensor.shape, [](std::int64_t dim) { return dim < 0; }))
    return refuse(tensor, "has a negative dimension");
  if (tensor.shape.empty() && elements_in_one(tensor) != 1)
    return refuse(tensor, "is a scalar of " + std::string(to_string(tensor.dtype)) +
                              ", whose elements are written one by one, along the last dimension");
  const std::optional<std::uint64_t> bits = bits_of_shape(tensor);
  if (!bits) return refuse(tensor, "has a shape of more elements than can be counted");
  if (*bits % 8 != 0)
    return refuse(tensor, "has elements of " + std::string(to_string(tensor.dtype)) +
                              " that do not fill whole bytes");
  if (*bits / 8 == tensor.content.size()) return {};
  return refuse(tensor, "has " + std::to_string(tensor.content.size()) +
                            " bytes, and its shape needs " + std::to_string(*bits / 8));
}

Result<SafetensorsLayout> lay_out_safetensors(std::span<const SafetensorsTensor> tensors,
                                              std::vector<std::size_t> members,
                                              const SafetensorsMetadata& metadata) {
  sort_by_alignment(tensors, members);
  std::string text = "{";
  if (!metadata.empty()) append_metadata(text, metadata);
  std::uint64_t end = 0;
  for (const std::size_t member : members) {
    if (text.size() > 1) text += ',';
    append_tensor(text, tensors[member], end);
    if (!bytes::checked_add(end, tensors[member].content.size(), &end))
      return failure(ErrorCode::invalid_argument, "the tensors have more bytes than a file can");
    if (text.size() > most_header_bytes) break;
  }
  text += '}';
  text.append(alignment - 1 - (length_bytes + text.size() + alignment - 1) % alignment, ' ');
  if (text.size() > most_header_bytes)
    return failure(ErrorCode::limit_exceeded, "the header would have more than " +
                                                  std::to_string(most_header_bytes) +
                                                  " bytes, which no reader takes");
  SafetensorsLayout made;
  append_length(made.header, text.size());
  made.header += text;
  made.tensors = std::move(members);
  if (!bytes::checked_add<std::uint64_t>(made.header.size(), end, &made.bytes))
    return failure(ErrorCode::invalid_argument, "the tensors have more bytes than a file can");
  return made;
}

}  // namespace weightmap
