#include "runtime/formats/dcp/metadata.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/boxes.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/formats/sets/shard_index.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/names.hpp"

namespace weightmap::dcp {
namespace {

// Globals in torch's metadata, unknown to torch.load. torch 1.12 to 2.0 had other modules.
constexpr std::array own_globals = {
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.planner.SavePlan",  // this and the following: of Megatron
    "torch.distributed.checkpoint.planner.WriteItem",
    "torch.distributed.checkpoint.planner.WriteItemType",
    "torch.distributed.checkpoint.planner.TensorWriteData",
    "torch.distributed.checkpoint.planner.BytesIOWriteData",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.serialization._get_layout",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib._local.PosixPath",
};

// The maximum growth of the value tree for each byte of the pickle. Each chunk is five objects with
// a dict each: 150 bytes in the pickle and 2 KB in the tree.
constexpr std::uint64_t tree_ratio = 32;

// The maximum size of all tables of chunks for each byte of the pickle. A chunk from torch has 140
// bytes of pickle and takes 640 here; one whose parts are all memoized has 30 bytes.
constexpr std::uint64_t table_ratio = 8;
// The approximate size of an entry in these tables, without numbers of a place or a shape.
constexpr std::uint64_t entry_bytes = 128;

// Finds a field of a dataclass. It has few: a state that many objects share is searched for each.
Value field(const Value& object, std::string_view name) {
  constexpr std::size_t most_fields = 64;
  const std::optional<Value> state = object.state();
  if (!state || state->item_count() > most_fields) return {};
  return state->find(name).value_or(Value());
}

using Numbers = std::span<const std::int64_t>;

// Reads a torch.Size, which is a call with a tuple, or a plain tuple, into `sizes`.
bool read_sizes(const Value& value, std::uint32_t most_rank, std::vector<std::int64_t>& sizes) {
  const bool is_size = value.kind() == Value::Kind::object && value.arguments().size() == 1;
  const Value tuple = is_size ? value.arguments()[0] : value;
  if ((tuple.kind() != Value::Kind::tuple && tuple.kind() != Value::Kind::list) ||
      tuple.size() > most_rank)
    return false;
  sizes.clear();
  for (const Value& element : tuple.elements()) {
    const std::optional<std::int64_t> size = element.integer();
    if (!size || *size < 0) return false;
    sizes.push_back(*size);
  }
  return true;
}

// What joins the two dicts of the metadata: the name and the beginning of a chunk.
struct ChunkKey {
  std::uint32_t name;
  Numbers offsets;

  bool operator==(const ChunkKey& other) const noexcept {
    return name == other.name && std::ranges::equal(offsets, other.offsets);
  }
};

struct ChunkKeyHash {
  std::size_t operator()(const ChunkKey& key) const noexcept {
    const auto* const bytes = reinterpret_cast<const char*>(key.offsets.data());
    constexpr std::size_t spread = 0x9E3779B97F4A7C15;  // odd: names of one beginning differ
    return std::hash<std::string_view>()({bytes, key.offsets.size_bytes()}) + spread * key.name;
  }
};

// The state of the dataclass TensorProperties: a tuple in this order.
struct Properties {
  std::optional<DType> dtype;
  bool is_strided = false;
  bool requires_grad = false;

  explicit Properties(const Value& object) {
    const Value state = object.state().value_or(Value());
    const bool is_tuple = state.kind() == Value::Kind::tuple && state.size() >= 3;
    const Value type = is_tuple ? state[0] : field(object, "dtype");
    const Value layout = is_tuple ? state[1] : field(object, "layout");
    requires_grad =
        (is_tuple ? state[2] : field(object, "requires_grad")).boolean().value_or(false);
    if (type.kind() == Value::Kind::global) dtype = torch::dtype_global(type.module(), type.name());
    const Value arguments = layout.kind() == Value::Kind::object ? layout.arguments() : Value();
    is_strided = layout.kind() == Value::Kind::global
                     ? layout.name() == "strided"
                     : arguments.size() == 1 && arguments[0].string() == "torch.strided";
  }
};

// Numbers the names of tensors. A pickle can repeat a text in two bytes, so each text is hashed
// once and then recognised by its place.
class NameNumbers {
 public:
  explicit NameNumbers(std::pmr::memory_resource& memory) : by_place_(&memory), by_text_(&memory) {}

  std::uint32_t of(std::string_view name) {
    const auto [place, is_new] = by_place_.try_emplace(name.data(), Known{name.size(), 0});
    if (!is_new && place->second.size == name.size()) return place->second.number;
    const auto next = static_cast<std::uint32_t>(by_text_.size());
    const std::uint32_t number = by_text_.try_emplace(name, next).first->second;
    place->second = {name.size(), number};
    return number;
  }

 private:
  struct Known {
    std::size_t size;
    std::uint32_t number;
  };
  std::pmr::unordered_map<const char*, Known> by_place_;
  std::pmr::unordered_map<std::string_view, std::uint32_t> by_text_;
};

class MetadataReader {
 public:
  MetadataReader(const OpenOptions& options, std::pmr::memory_resource& memory)
      : options_(with_own_globals(options)), memory_(memory) {
    metadata_.numbers = std::make_unique<std::pmr::monotonic_buffer_resource>(&memory);
  }

  Result<void> read(format::Input& input) {
    items_.clear();
    object_items_.clear();
    paths_.clear();
    TRY(read_pickle(input));  // adds a tree
    const Value root(metadata_.trees.back().get(), metadata_.trees.back()->root());
    const Value tensors = field(root, "state_dict_metadata");
    const Value places = field(root, "storage_data");
    if (tensors.kind() != Value::Kind::dict || places.kind() != Value::Kind::dict)
      return failure(ErrorCode::corrupt,
                     "is no metadata of torch.distributed.checkpoint: it has no dicts "
                     "state_dict_metadata and storage_data");
    if (const Value paths = field(root, "planner_data"); paths.kind() == Value::Kind::dict)
      for (const auto& [name, path] : paths.items())
        if (name.string() && path.kind() == Value::Kind::tuple) {
          TRY(count(1, 0));
          paths_[names_.of(*name.string())] = path;
        }
    for (const auto& [index, place] : places.items()) TRY(read_place(index, place));
    for (const auto& [name, what] : tensors.items()) TRY(read_tensor(name, what));
    return {};
  }

  Metadata finish(const std::function<bool(const std::string&)>& is_there) && {
    if (is_there) drop_missing_files(is_there);
    sort_files();
    return std::move(metadata_);
  }

 private:
  struct Place {
    Item item;
    bool is_transformed;
  };

  Result<void> read_pickle(format::Input& input) {
    const std::uint64_t size = input.file->size();
    const Limits& limits = options_.limits;
    if (size > limits.pickle_bytes)
      return failure(ErrorCode::limit_exceeded, "the metadata of " + std::to_string(size) +
                                                    " bytes is longer than the limit of " +
                                                    std::to_string(limits.pickle_bytes));
    TRY_ASSIGN(const std::span<const std::byte> pickle, input.cache->bytes(0, size));
    TRY_ASSIGN(std::unique_ptr<value::Tree> tree,
               pickle::parse(input.cache->take(pickle), pickle, 0,
                             {limits.base_memory + tree_ratio * size, limits.depth}, memory_));
    TRY_ASSIGN(const bool are_safe, torch::check_globals(*tree, 0, options_));
    metadata_.names_torch_safe_only = metadata_.names_torch_safe_only && are_safe;
    metadata_.trees.push_back(std::move(tree));
    metadata_.pickle_bytes += size;
    return {};
  }

  // Counts so many entries, with so many numbers together, before they are made.
  Result<void> count(std::uint64_t entries, std::uint64_t numbers) {
    table_bytes_ += entry_bytes * entries + sizeof(std::int64_t) * numbers;
    const std::uint64_t base = options_.limits.base_memory;
    if (table_bytes_ <= base + table_ratio * metadata_.pickle_bytes) return {};
    return failure(ErrorCode::limit_exceeded,
                   "the chunks of the metadata need more memory than the limit of " +
                       std::to_string(base) + " bytes and eight times the metadata");
  }

  tl::unexpected<Error> corrupt(std::string_view name, const std::string& what) const {
    return failure(ErrorCode::corrupt, "tensor " + bytes::quote(name) + " " + what);
  }

  // Numbers that live as long as the metadata.
  Numbers keep(Numbers numbers) {
    std::pmr::polymorphic_allocator<std::int64_t> allocator(metadata_.numbers.get());
    std::int64_t* const kept = allocator.allocate(numbers.size());
    std::ranges::copy(numbers, kept);
    return {kept, numbers.size()};
  }

  Result<void> read_place(const Value& index, const Value& place) {
    const std::optional<std::string_view> name = field(index, "fqn").string();
    const std::optional<std::string_view> path = field(place, "relative_path").string();
    const std::optional<std::int64_t> offset = field(place, "offset").integer();
    const std::optional<std::int64_t> length = field(place, "length").integer();
    if (!name) return failure(ErrorCode::corrupt, "the metadata has an item without a name (fqn)");
    if (!path || !offset || !length || *offset < 0 || *length < 0)
      return corrupt(*name, "has an item without relative_path, offset and length");
    const Value begin = field(index, "offset");
    const bool is_object = begin.is_none();  // not a tensor
    offsets_.clear();
    if (!is_object && !read_sizes(begin, options_.limits.rank, offsets_))
      return corrupt(*name, "has an item whose offset is no torch.Size");
    TRY(count(1, offsets_.size()));
    TRY_ASSIGN(const std::uint32_t file, file_of(*name, *path));
    const Place read{
        {file, static_cast<std::uint64_t>(*offset), static_cast<std::uint64_t>(*length)},
        field(place, "transform_descriptors").size() != 0};
    if (is_object) {
      object_items_[names_.of(*name)] = read;
      return {};
    }
    const ChunkKey key{names_.of(*name), keep(offsets_)};
    if (!items_.try_emplace(key, read).second)
      return corrupt(*name, "has two items for the chunk at " + bytes::listed(offsets_));
    return {};
  }

  Result<std::uint32_t> file_of(std::string_view tensor, std::string_view path) {
    constexpr std::size_t longest_path = 4096;  // PATH_MAX
    if (path.size() > longest_path)
      return corrupt(tensor, "lies in the file " + bytes::quote(path) +
                                 ", whose name is longer than a path can be");
    const auto known = numbers_.find(std::string(path));
    if (known != numbers_.end()) return known->second;
    if (!sets::stays_below(path))
      return corrupt(tensor, "lies in the file " + bytes::quote(path) +
                                 ", which is not in the folder of the metadata or below");
    if (sets::is_distributed_metadata(path.substr(path.rfind('/') + 1)))
      return corrupt(tensor,
                     "lies in the file " + bytes::quote(path) + ", which is called as metadata is");
    if (metadata_.files.size() == sets::most_files)
      return failure(ErrorCode::limit_exceeded, "the metadata names more than " +
                                                    std::to_string(sets::most_files) +
                                                    " files, which is the limit");
    const auto number = static_cast<std::uint32_t>(metadata_.files.size());
    metadata_.files.emplace_back(path);
    numbers_.emplace(path, number);
    return number;
  }

  Result<void> read_tensor(const Value& key, const Value& what) {
    const std::optional<std::string_view> name = key.string();
    if (!name) return failure(ErrorCode::corrupt, "the metadata has a tensor without a name");
    TRY(count(1, 0));
    const Value size = field(what, "size");
    const Value chunks = field(what, "chunks");
    if (size.is_none() && chunks.is_none()) {
      add_object(*name);
      return {};
    }
    if (!read_sizes(size, options_.limits.rank, sizes_))
      return corrupt(*name, "has a size that is no torch.Size");
    TRY(count(1, sizes_.size()));
    const Properties properties(field(what, "properties"));
    if (!properties.dtype) return corrupt(*name, "has no dtype that torch has");
    Tensor tensor{*name,        {}, *properties.dtype, properties.requires_grad,
                  keep(sizes_), {}, ranks_++};
    const std::uint32_t number = names_.of(*name);
    if (const auto read = read_in_.find(number);
        read != read_in_.end() && read->second == metadata_.trees.size())
      return corrupt(*name, "comes twice in the metadata");
    read_in_[number] = metadata_.trees.size();
    tensor.path = path_of(*name);
    bool is_readable = properties.is_strided;
    if (chunks.kind() != Value::Kind::list) return corrupt(*name, "has no list of chunks");
    for (const Value& chunk : chunks.elements()) {
      TRY_ASSIGN(const bool is_plain, add_chunk(tensor, number, chunk));
      is_readable = is_readable && is_plain;
    }
    if (!is_readable) {
      leave_out(*name);
      return {};
    }
    return add(std::move(tensor), number);
  }

  // Keys are joined by dots.
  std::optional<Value> path_of(std::string_view name) {
    const auto path = paths_.find(names_.of(name));
    if (path == paths_.end() || path->second.size() > name.size() + 1) return std::nullopt;
    return path->second;
  }

  // Several ranks may name the same object, of which one has saved it.
  void add_object(std::string_view name) {
    const auto item = object_items_.find(names_.of(name));
    if (item != object_items_.end() && item->second.is_transformed) return leave_out(name);
    const auto [at, is_new] = objects_.try_emplace(names_.of(name), metadata_.objects.size());
    if (is_new) metadata_.objects.push_back({name, path_of(name), {}, ranks_++, {}});
    Object& object = metadata_.objects[at->second];
    if (item != object_items_.end() && !object.item) object.item = item->second.item;
  }

  void leave_out(std::string_view name) {
    if (unsupported_.insert(names_.of(name)).second) metadata_.unsupported.emplace_back(name);
  }

  // Returns false if the item cannot be mapped.
  Result<bool> add_chunk(Tensor& tensor, std::uint32_t number, const Value& chunk) {
    if (!read_sizes(field(chunk, "offsets"), options_.limits.rank, offsets_) ||
        !read_sizes(field(chunk, "sizes"), options_.limits.rank, sizes_) ||
        offsets_.size() != tensor.sizes.size() || sizes_.size() != tensor.sizes.size())
      return corrupt(tensor.name, "has a chunk whose offsets and sizes are not those of " +
                                      std::to_string(tensor.sizes.size()) + " dimensions");
    if (++chunks_ > options_.limits.tensors)
      return failure(ErrorCode::limit_exceeded, "the metadata has more than " +
                                                    std::to_string(options_.limits.tensors) +
                                                    " chunks, which is the limit");
    // The box, the chunk, and parse()'s piece; their numbers are places, shapes and strides.
    TRY(count(3, 7 * sizes_.size()));
    const auto place = items_.find({number, offsets_});
    if (place == items_.end())
      return corrupt(tensor.name,
                     "has a chunk at " + bytes::listed(offsets_) + " that is in none of the files");
    tensor.chunks.push_back({place->first.offsets, keep(sizes_), place->second.item});
    return !place->second.is_transformed;
  }

  // Merges the chunks of several ranks, including replicated ones.
  Result<void> add(Tensor tensor, std::uint32_t number) {
    const auto [at, is_new] = tensors_.try_emplace(number, metadata_.tensors.size());
    const std::vector<Chunk> chunks = std::exchange(tensor.chunks, {});
    if (is_new) metadata_.tensors.push_back(tensor);
    Tensor& known = metadata_.tensors[at->second];
    if (known.dtype != tensor.dtype || !std::ranges::equal(known.sizes, tensor.sizes))
      return corrupt(tensor.name, "is of " + std::string(to_string(known.dtype)) + " and " +
                                      bytes::listed(known.sizes) + " for one rank, and of " +
                                      std::string(to_string(tensor.dtype)) + " and " +
                                      bytes::listed(tensor.sizes) + " for another");
    known.chunks.reserve(known.chunks.size() + chunks.size());
    for (const Chunk& chunk : chunks) {
      const auto [box, is_new_box] = boxes_.try_emplace({number, chunk.offsets}, chunk.sizes);
      // Ranks without a part of it may all have the same empty box, with one item for it.
      const bool is_repeated = is_new ? BoxRef{chunk.offsets, chunk.sizes}.is_empty()
                                      : std::ranges::equal(box->second, chunk.sizes);
      if (is_new_box || !is_repeated) known.chunks.push_back(chunk);
    }
    return {};
  }

  // Of those that have no tensors. They get no number.
  void drop_missing_files(const std::function<bool(const std::string&)>& is_there) {
    std::vector<std::string>& files = metadata_.files;
    std::vector<bool> is_kept(files.size());
    for (const Tensor& tensor : metadata_.tensors)
      for (const Chunk& chunk : tensor.chunks) is_kept[chunk.item.file] = true;
    for (std::size_t i = 0; i < files.size(); ++i) is_kept[i] = is_kept[i] || is_there(files[i]);
    for (Object& object : metadata_.objects)
      if (object.item && !is_kept[object.item->file]) {
        object.missing_file = files[object.item->file];
        object.item.reset();
      }
    for (std::size_t i = 0; i < files.size(); ++i)
      if (!is_kept[i]) files[i].clear();
  }

  // Those without a name are dropped.
  void sort_files() {
    std::vector<std::uint32_t> order(metadata_.files.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {},
                      [this](std::uint32_t i) -> const std::string& { return metadata_.files[i]; });
    std::vector<std::uint32_t> place(order.size());
    std::vector<std::string> sorted;
    for (const std::uint32_t number : order) {
      if (metadata_.files[number].empty()) continue;
      place[number] = static_cast<std::uint32_t>(sorted.size());
      sorted.push_back(std::move(metadata_.files[number]));
    }
    metadata_.files = std::move(sorted);
    for (Tensor& tensor : metadata_.tensors)
      for (Chunk& chunk : tensor.chunks) chunk.item.file = place[chunk.item.file];
    for (Object& object : metadata_.objects)
      if (object.item) object.item->file = place[object.item->file];
  }

  const OpenOptions options_;
  std::pmr::memory_resource& memory_;
  Metadata metadata_;
  std::uint64_t chunks_ = 0;
  std::uint64_t table_bytes_ = 0;
  std::uint32_t ranks_ = 0;
  std::vector<std::int64_t> offsets_;  // what was read last
  std::vector<std::int64_t> sizes_;    // likewise
  // Of the following tables, which are freed together.
  std::pmr::monotonic_buffer_resource tables_;
  template <class Key, class To, class Hash = std::hash<Key>>
  using Table = std::pmr::unordered_map<Key, To, Hash>;
  Table<ChunkKey, Place, ChunkKeyHash> items_{&tables_};    // of the current file
  Table<std::uint32_t, Place> object_items_{&tables_};      // likewise, by number of the name
  Table<std::uint32_t, Value> paths_{&tables_};             // likewise
  std::unordered_map<std::string, std::uint32_t> numbers_;  // numbers of files
  NameNumbers names_{tables_};
  Table<std::uint32_t, std::size_t> tensors_{&tables_};  // by number of the name
  Table<std::uint32_t, std::size_t> objects_{&tables_};  // likewise
  Table<std::uint32_t, std::size_t> read_in_{&tables_};  // the number of trees by then
  std::unordered_set<std::uint32_t> unsupported_;
  Table<ChunkKey, Numbers, ChunkKeyHash> boxes_{&tables_};  // of all chunks
};

}  // namespace

OpenOptions with_own_globals(OpenOptions options) {
  for (const char* name : own_globals) options.safe_globals.insert(name);
  return options;
}

Result<Metadata> read_metadata(std::span<format::Input> files,
                               std::span<const std::string_view> names, const OpenOptions& options,
                               std::pmr::memory_resource& memory,
                               const std::function<bool(const std::string&)>& is_there) {
  MetadataReader reader(options, memory);
  for (std::size_t i = 0; i < files.size(); ++i) {
    Result<void> read = reader.read(files[i]);
    if (read) continue;
    if (read.error().file.empty()) read.error().file = names[i];
    return tl::unexpected<Error>(std::move(read.error()));
  }
  return std::move(reader).finish(is_there);
}

}  // namespace weightmap::dcp
