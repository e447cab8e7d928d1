#include "weightmap/safetensors_writer.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/element_walk.hpp"
#include "runtime/base/json/json_text.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/safetensors/element_types.hpp"
#include "runtime/services/write/contents.hpp"
#include "runtime/services/write/file_set.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t tensor_alignment = 64;
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
    return tensors[member].content.size() % tensor_alignment == 0;
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

// Fails for a tensor that the format cannot hold.
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

struct SafetensorsLayout {
  std::string header;                // with its length before it and the padding blanks
  std::vector<std::size_t> tensors;  // in file order
  std::uint64_t bytes = 0;           // size of the file
};

// Lays out a file with the `members` of `tensors`. Fails with limit_exceeded for a header that no
// reader accepts. Precondition: check_tensor() of each.
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
  text.append(
      tensor_alignment - 1 - (length_bytes + text.size() + tensor_alignment - 1) % tensor_alignment,
      ' ');
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

std::span<const std::byte> origin_of(const SafetensorsTensor& tensor) noexcept {
  return tensor.origin.empty() ? tensor.content.memory() : tensor.origin;
}

// Orders tensors so that those with identical elements are equal.
struct ByElements {
  bool operator()(const SafetensorsTensor* a, const SafetensorsTensor* b) const noexcept {
    const std::byte* const a_begin = origin_of(*a).data();
    const std::byte* const b_begin = origin_of(*b).data();
    if (a_begin != b_begin) return std::less<>()(a_begin, b_begin);
    return std::tie(a->dtype, a->shape, a->strides) < std::tie(b->dtype, b->shape, b->strides);
  }
};

std::string both(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return "the tensors " + bytes::quote(a.name) + " and " + bytes::quote(b.name);
}

// Compares each tensor, in the order of first bytes, with the earlier one that ends last. Tensors
// that are not contiguous are excluded, since they may interleave and are copied anyway.
Result<void> check_overlap(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : tensors)
    if (!origin_of(tensor).empty() && tensor.strides.empty()) sorted.push_back(&tensor);
  std::ranges::sort(sorted, std::less<>(), [](const SafetensorsTensor* tensor) {
    return std::pair(origin_of(*tensor).data(), origin_of(*tensor).size());
  });
  const SafetensorsTensor* last = nullptr;
  const std::byte* end = nullptr;
  for (const SafetensorsTensor* tensor : sorted) {
    const std::span<const std::byte> origin = origin_of(*tensor);
    if (last != nullptr && std::less<>()(origin.data(), end))
      return failure(ErrorCode::invalid_argument,
                     both(*last, *tensor) +
                         " share a part of their elements, which safetensors cannot say; ask for "
                         "shared=copy to have both written");
    if (last == nullptr || std::less<>()(end, origin.data() + origin.size()))
      std::tie(last, end) = std::pair(tensor, origin.data() + origin.size());
  }
  return {};
}

// Handles tensors that share elements, which the format cannot express.
// Moves the dropped tensors from `tensors` to `dropped`. Fails with invalid_argument, naming two
// tensors, if `how` refuses sharing.
Result<void> settle_shared(std::vector<SafetensorsTensor>& tensors, SharedElements how,
                           std::vector<SafetensorsReport::Dropped>& dropped) {
  if (how == SharedElements::copy) return {};
  std::map<const SafetensorsTensor*, bool, ByElements> known;
  std::vector<bool> is_kept(tensors.size(), true);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (origin_of(tensors[i]).empty()) continue;
    const auto [first, is_new] = known.emplace(&tensors[i], true);
    if (is_new) continue;
    if (how == SharedElements::refuse)
      return failure(ErrorCode::invalid_argument,
                     both(*first->first, tensors[i]) +
                         " share their elements, which safetensors cannot say; ask for shared=drop "
                         "to have the second named in the metadata only, or for shared=copy to "
                         "have both written");
    dropped.push_back({tensors[i].name, first->first->name});
    is_kept[i] = false;
  }
  std::vector<SafetensorsTensor> kept;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (is_kept[i]) kept.push_back(std::move(tensors[i]));
  tensors = std::move(kept);
  return check_overlap(tensors);
}

using Files = std::vector<std::vector<std::size_t>>;  // the tensors of each

constexpr std::string_view extension = ".safetensors";

Result<void> check_tensors(const std::vector<SafetensorsTensor>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    TRY(check_tensor(tensor));
    if (!names.insert(tensor.name).second)
      return failure(ErrorCode::invalid_argument,
                     "there are two tensors called " + bytes::quote(tensor.name));
  }
  return {};
}

Result<void> check_metadata(const SafetensorsMetadata& metadata) {
  std::unordered_set<std::string_view> keys;
  for (const auto& [key, text] : metadata) {
    if (!bytes::is_utf8(key) || !bytes::is_utf8(text))
      return failure(ErrorCode::invalid_argument,
                     "the metadata " + bytes::quote(key) + " is not UTF-8");
    if (!keys.insert(key).second)
      return failure(ErrorCode::invalid_argument,
                     "the metadata has " + bytes::quote(key) + " twice");
  }
  return {};
}

Files divide(const std::vector<SafetensorsTensor>& tensors, std::uint64_t max_file_bytes) {
  std::vector<ShardItem> items;
  for (const SafetensorsTensor& tensor : tensors)
    items.push_back({tensor.content.size(), items.size()});
  return divide_into_shards(items, max_file_bytes);
}

std::string index_text(const std::vector<SafetensorsTensor>& tensors, const Files& files,
                       const std::filesystem::path& path, std::uint64_t tensor_bytes) {
  std::vector<std::pair<std::string_view, std::size_t>> file_of;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const std::size_t tensor : files[i]) file_of.emplace_back(tensors[tensor].name, i);
  return shard_index_text(std::move(file_of), files.size(), path, tensor_bytes);
}

class SafetensorsWriting {
 public:
  SafetensorsWriting(std::vector<SafetensorsTensor> tensors, const SafetensorsMetadata& metadata,
                     const std::filesystem::path& path, const SafetensorsOptions& options)
      : tensors_(std::move(tensors)), metadata_(metadata), path_(path), options_(options) {}

  Result<SafetensorsReport> run() {
    TRY(prepare());
    FileSet set(options_.file, options_.progress, report_.tensor_bytes);
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      TRY(set.add(report_.has_index ? shard_path(path_, i, layouts_.size()) : path_,
                  layouts_[i].bytes));
    if (report_.has_index) TRY(set.add(index_path(path_), index_.size()));
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      TRY(about_file(write(set.files()[i], layouts_[i]), set.files()[i].path()));
    if (report_.has_index) {
      TRY(set.files().back().put_head(std::as_bytes(std::span(index_))));
      TRY(set.files().back().sync());
    }
    TRY(set.commit());
    for (const ContentFile& file : set.files()) {
      report_.files.push_back({file.path(), file.bytes()});
      report_.bytes += file.bytes();
    }
    return std::move(report_);
  }

 private:
  // Does all work up to the first file.
  Result<void> prepare() {
    if (std::endian::native != std::endian::little)
      return failure(ErrorCode::unsupported,
                     "safetensors files have little-endian elements, and this machine is "
                     "big-endian");
    const bool may_be_set = options_.max_file_bytes != 0 || options_.always_index;
    if (may_be_set && path_.extension() != extension)
      return failure(ErrorCode::invalid_argument,
                     "the path of what may be a set of files must end in .safetensors");
    TRY(check_tensors(tensors_));
    TRY(settle_shared(tensors_, options_.shared, report_.dropped));
    for (const auto& [name, kept] : report_.dropped) metadata_.emplace_back(name, kept);
    TRY(check_metadata(metadata_));
    const Files files = divide(tensors_, options_.max_file_bytes);
    for (const std::vector<std::size_t>& members : files) {
      TRY_ASSIGN(SafetensorsLayout layout, lay_out_safetensors(tensors_, members, metadata_));
      report_.tensor_bytes += layout.bytes - layout.header.size();
      layouts_.push_back(std::move(layout));
    }
    report_.has_index = options_.always_index || files.size() > 1;
    if (!report_.has_index) return {};
    if (!bytes::is_utf8(path_.filename().native()))
      return failure(ErrorCode::invalid_argument,
                     "the name of the file is not UTF-8, which the index of a set has to be");
    index_ = index_text(tensors_, files, path_, report_.tensor_bytes);
    return {};
  }

  Result<void> write(ContentFile& file, const SafetensorsLayout& layout) const {
    TRY(file.put_head(std::as_bytes(std::span(layout.header))));
    for (const std::size_t member : layout.tensors)
      TRY(file.put(tensors_[member].content, "the tensor " + bytes::quote(tensors_[member].name)));
    return file.sync();
  }

  std::vector<SafetensorsTensor> tensors_;
  SafetensorsMetadata metadata_;
  const std::filesystem::path& path_;
  const SafetensorsOptions& options_;
  std::vector<SafetensorsLayout> layouts_;
  std::string index_;
  SafetensorsReport report_;
};

}  // namespace

Result<SafetensorsTensor> SafetensorsTensor::of(std::string name, const TensorView& view) {
  Result<void> readable = view.check_gather(view.nbytes());
  if (readable) readable = check_repeats(view);
  if (!readable) {
    readable.error().message.insert(0, "the tensor " + bytes::quote(name) + ": ");
    return tl::unexpected<Error>(std::move(readable.error()));
  }
  SafetensorsTensor made{.name = std::move(name),
                         .dtype = view.dtype(),
                         .shape = {view.shape().begin(), view.shape().end()},
                         .content = content_of(view),
                         .origin = view.stored_bytes()};
  if (!view.is_contiguous()) made.strides = {view.strides().begin(), view.strides().end()};
  return made;
}

Result<SafetensorsReport> write_safetensors(std::vector<SafetensorsTensor> tensors,
                                            const SafetensorsMetadata& metadata,
                                            const std::filesystem::path& path,
                                            const SafetensorsOptions& options) {
  return about_file(SafetensorsWriting(std::move(tensors), metadata, path, options).run(), path);
}

}  // namespace weightmap
