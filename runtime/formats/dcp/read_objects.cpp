#include "runtime/formats/dcp/read_objects.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/dcp/item_source.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/globals.hpp"

namespace weightmap::dcp {
namespace {

// A longer item is not read whole: it has the elements of tensors, or one large text.
constexpr std::uint64_t most_whole = 65536;
// Items of one object are few and small; the memory of the reads is that of one round.
constexpr std::size_t objects_together = 1024;

// The place of an object's pickle in the program, and in its file.
struct PicklePlace {
  std::size_t object;
  std::uint32_t begin;
  std::uint32_t end;
  std::uint64_t file_offset;
};

// True if a reference to a storage is below the value. Visits each shared value once.
bool holds_tensor(const Value& value) {
  struct Hash {
    std::size_t operator()(const Value& node) const noexcept { return node.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };
  std::unordered_set<Value, Hash, Same> seen;
  std::vector<Value> waiting{value};
  while (!waiting.empty()) {
    const Value node = waiting.back();
    waiting.pop_back();
    if (node.kind() == Value::Kind::persistent_id) return true;
    const bool is_leaf =
        node.size() == 0 && node.item_count() == 0 && node.kind() != Value::Kind::object;
    if (is_leaf || (node.may_be_shared() && !seen.insert(node).second)) continue;
    if (node.kind() == Value::Kind::object) {
      waiting.push_back(node.callable());
      waiting.push_back(node.arguments());
      if (const std::optional<Value> state = node.state()) waiting.push_back(*state);
    }
    for (const Value& element : node.elements()) waiting.push_back(element);
    for (const auto& [key, part] : node.items()) {
      waiting.push_back(key);
      waiting.push_back(part);
    }
  }
  return false;
}

class ObjectReader {
 public:
  ObjectReader(std::span<const Object> objects, std::span<const DataFile> files,
               const OpenOptions& options, std::pmr::memory_resource& memory)
      : objects_(objects), files_(files), options_(options), memory_(memory) {}

  Result<ReadObjects> run(std::string_view more) && {
    TRY(read_pickles());
    ReadObjects read{nullptr, std::vector<std::optional<value::Cell>>(objects_.size()), {}};
    TRY_ASSIGN(read.tree, parse(more));
    if (Result<bool> safe = torch::check_globals(*read.tree, 0, options_); !safe)
      return about_program(std::move(safe.error()));
    const Value all(read.tree.get(), read.tree->root());
    auto place = places_.begin();
    for (const auto& [unused, value] : all.items())
      if (place == places_.end())
        for (const Value& element : value.elements()) read.more.push_back(element.cell());
      else if (const std::size_t object = place++->object; !holds_tensor(value))
        read.cells[object] = value.cell();
    return read;
  }

 private:
  Result<void> read_pickles();
  Result<void> read_some(std::span<const std::size_t> some);
  Result<void> read_pickle(std::size_t object, const ItemSource& source);
  Result<std::unique_ptr<value::Tree>> parse(std::string_view more);

  tl::unexpected<Error> about(std::size_t object, Error error) const {
    error.message.insert(0, bytes::quote(objects_[object].name) + ": ");
    if (error.code == ErrorCode::not_a_checkpoint) error.code = ErrorCode::corrupt;
    if (objects_[object].item && error.file.empty())
      error.file = files_[objects_[object].item->file].shown_name;
    return tl::unexpected<Error>(std::move(error));
  }
  // The same for an error at a place in the item.
  tl::unexpected<Error> about_item(std::size_t object, Error error) const {
    const std::uint64_t at = objects_[object].item->offset;
    error.file_offset = error.file_offset == Error::no_offset ? at : at + error.file_offset;
    return about(object, std::move(error));
  }
  // The same for an error at a place in the program.
  tl::unexpected<Error> about_program(Error error) const {
    const auto behind =
        std::ranges::upper_bound(places_, error.file_offset, {}, &PicklePlace::begin);
    if (error.file_offset == Error::no_offset || behind == places_.begin() ||
        error.file_offset > std::prev(behind)->end)
      return tl::unexpected<Error>(std::move(error));
    const PicklePlace& place = *std::prev(behind);
    error.file_offset += place.file_offset - place.begin;
    return about(place.object, std::move(error));
  }

  std::span<const Object> objects_;
  std::span<const DataFile> files_;
  const OpenOptions& options_;
  std::pmr::memory_resource& memory_;
  OpenStats unused_;
  std::vector<std::byte> program_;  // all pickles, with a byte between two
  std::vector<PicklePlace> places_;
};

Result<void> ObjectReader::read_pickles() {
  std::vector<std::size_t> order(objects_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const std::size_t object : order)
    if (!objects_[object].item)
      return about(object, objects_[object].missing_file.empty()
                               ? Error{ErrorCode::corrupt, "it is in none of the files"}
                               : Error{ErrorCode::not_found,
                                       "its file " + bytes::quote(objects_[object].missing_file) +
                                           " is missing"});
  std::ranges::sort(order, {}, [this](std::size_t object) {
    return std::tuple(objects_[object].item->file, objects_[object].item->offset);
  });
  for (std::size_t begin = 0; begin < order.size();) {
    const std::uint32_t file = objects_[order[begin]].item->file;
    std::size_t end = begin + 1;
    while (end < order.size() && end - begin < objects_together &&
           objects_[order[end]].item->file == file)
      ++end;
    TRY(read_some(std::span(order).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

// All of them are in one file.
Result<void> ObjectReader::read_some(std::span<const std::size_t> some) {
  const DataFile& file = files_[objects_[some.front()].item->file];
  PartsOfFile parts(*file.file, unused_);
  for (const std::size_t object : some) {
    const Item& item = *objects_[object].item;
    if (Result<void> fits = check_place(item, *file.file); !fits)
      return about_item(object, std::move(fits.error()));
    parts.want_ends(item, most_whole);
  }
  if (Result<void> announced = parts.announce(); !announced)
    return about(some.front(), std::move(announced.error()));
  for (const std::size_t object : some) {
    const Item& item = *objects_[object].item;
    if (Result<void> read = parts.read_ends(item); !read)
      return about(object, std::move(read.error()));
    if (Result<void> read = read_pickle(object, ItemSource(parts, item)); !read)
      return about_item(object, std::move(read.error()));
  }
  return {};
}

Result<void> ObjectReader::read_pickle(std::size_t object, const ItemSource& source) {
  bytes::ReadCache cache(source, memory_, tail_bytes);
  TRY_ASSIGN(const zip::Directory directory,
             format::read_directory(source, cache, options_.limits));
  const zip::Record* const record = directory.find(torch::pickle_record);
  if (record == nullptr)
    return failure(ErrorCode::corrupt,
                   "the archive has no record data.pkl, as torch.save writes it");
  const Limits& limits = options_.limits;
  const std::uint64_t most =
      std::min<std::uint64_t>(limits.pickle_bytes, std::numeric_limits<std::uint32_t>::max());
  const std::uint64_t left = most - std::min<std::uint64_t>(most, program_.size() + 1);
  TRY_ASSIGN(
      const zip::RecordBytes content,
      zip::read_record(
          directory, *record, cache,
          record->method == zip::Method::stored ? left : std::min(left, limits.record_bytes)));
  const auto begin = static_cast<std::uint32_t>(program_.size());
  program_.insert(program_.end(), content.bytes.begin(), content.bytes.end());
  places_.push_back({object, begin, static_cast<std::uint32_t>(program_.size()),
                     objects_[object].item->offset + content.file_offset});
  program_.push_back({});
  return {};
}

Result<std::unique_ptr<value::Tree>> ObjectReader::parse(std::string_view more) {
  const std::uint64_t size = program_.size() + more.size();
  const std::uint64_t budget = options_.limits.base_memory + 5 * size;
  if (size > std::numeric_limits<std::uint32_t>::max())
    return failure(ErrorCode::limit_exceeded,
                   "the tensors and values need more than the 4 GiB that a pickle can address");
  std::vector<pickle::NamedPickle> parts;
  for (const PicklePlace& place : places_) parts.push_back({0, 0, place.begin, place.end});
  parts.push_back(
      {0, 0, static_cast<std::uint32_t>(program_.size()), static_cast<std::uint32_t>(size)});
  bytes::Buffer program(size, memory_);
  std::ranges::copy(std::as_bytes(std::span(more)),
                    std::ranges::copy(program_, program.data()).out);
  const std::span<const std::byte> all = program.span();
  Result<std::unique_ptr<value::Tree>> tree =
      pickle::parse(std::move(program), all, 0, {budget, options_.limits.depth}, memory_, parts);
  if (!tree) return about_program(std::move(tree.error()));
  return tree;
}

}  // namespace

Result<ReadObjects> read_objects(std::span<const Object> objects, std::string_view more,
                                 std::span<const DataFile> files, const OpenOptions& options,
                                 std::pmr::memory_resource& memory) {
  return ObjectReader(objects, files, options, memory).run(more);
}

}  // namespace weightmap::dcp
