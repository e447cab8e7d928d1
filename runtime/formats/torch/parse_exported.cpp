#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/make_catalog.hpp"
#include "runtime/formats/torch/parse.hpp"
#include "runtime/formats/torch/tensor_table.hpp"

namespace weightmap::torch {
namespace {

using format::Parsed;

// The contents of one of the two folders of an archive.
struct Folder {
  std::string_view name;
  std::string_view config;  // suffix of its records; the model's name precedes it
  bool has_parameters;
};
constexpr std::array folders = {
    Folder{"data/weights/", "_weights_config.json", true},
    Folder{"data/constants/", "_constants_config.json", false},
};

// ScalarType of torch/_export/serde/schema.py, whose numbers differ from c10's.
constexpr std::pair<std::int64_t, DType> schema_dtypes[] = {{1, DType::uint8},
                                                            {2, DType::int8},
                                                            {3, DType::int16},
                                                            {4, DType::int32},
                                                            {5, DType::int64},
                                                            {6, DType::float16},
                                                            {7, DType::float32},
                                                            {8, DType::float64},
                                                            {9, DType::complex32},
                                                            {10, DType::complex64},
                                                            {11, DType::complex128},
                                                            {12, DType::boolean},
                                                            {13, DType::bfloat16},
                                                            {28, DType::uint16},
                                                            {29, DType::float8_e4m3fn},
                                                            {30, DType::float8_e5m2},
                                                            {31, DType::float8_e4m3fnuz},
                                                            {32, DType::float8_e5m2fnuz},
                                                            {33, DType::float8_e8m0fnu},
                                                            {34, DType::uint32},
                                                            {35, DType::uint64}};

std::optional<DType> dtype_of(std::optional<std::int64_t> number) noexcept {
  for (const auto& [known, dtype] : schema_dtypes)
    if (known == number) return dtype;
  return std::nullopt;
}
constexpr std::int64_t strided_layout = 7;  // schema.py, Layout

Value field(const Value& object, std::string_view name) {
  return object.find(name).value_or(Value());
}

// Reads {"as_int": 3}. A size that depends on the input is an expression instead.
std::optional<std::int64_t> number_of(const Value& size) { return field(size, "as_int").integer(); }

class ExportedParser {
 public:
  ExportedParser(format::Input& input, const zip::Directory& directory, const OpenOptions& options,
                 OpenStats& stats, std::pmr::memory_resource& memory)
      : input_(input),
        directory_(directory),
        options_(options),
        stats_(stats),
        memory_(memory),
        parsed_(memory),
        table_(memory, 16, 16) {}

  Result<Parsed> run(ArchiveRecords records) && {
    TRY(read_configs());
    table_.paths.push_back({});
    const Value root(parsed_.tree.get(), parsed_.tree->root());
    for (const Config& config : configs_) TRY(add_config(config, root));
    TRY(place(records));
    describe(std::move(records));
    return std::move(parsed_);
  }

 private:
  struct Config {
    const Folder* folder;
    const zip::Record* record;
    std::string model;
  };

  Result<void> find_configs();
  Result<void> read_configs();
  Result<void> add_config(const Config& config, const Value& root);
  Result<void> add_tensor(const Config& config, const Value& key, const Value& entry,
                          std::uint32_t path);
  Result<std::uint32_t> storage_of(const Config& config, std::string_view record,
                                   std::string_view tensor);
  Result<void> read_dims(const Config& config, const Value& meta, std::string_view tensor,
                         TensorSpec& spec);
  Result<std::uint16_t> location_of(const Value& device);
  Result<void> place(const ArchiveRecords& records);
  void describe(ArchiveRecords records);
  bool has_models() const {
    return std::any_of(configs_.begin(), configs_.end(), [this](const Config& config) {
      return config.model != configs_.front().model;
    });
  }
  [[gnu::cold]] tl::unexpected<Error> corrupt(const Config& config, std::string_view tensor,
                                              const std::string& why) const {
    return failure(ErrorCode::corrupt,
                   "record " + bytes::quote(config.record->full_name()) + ": tensor " +
                       bytes::quote(tensor) + " " + why,
                   config.record->header_offset);
  }

  format::Input& input_;
  const zip::Directory& directory_;
  const OpenOptions& options_;
  OpenStats& stats_;
  std::pmr::memory_resource& memory_;
  Parsed parsed_;
  TensorTable table_;
  std::vector<Config> configs_;
  std::deque<std::string> locations_;
};

Result<void> ExportedParser::find_configs() {
  for (const Folder& folder : folders) {
    for (const zip::Record& record : directory_.records()) {
      const std::string_view name = directory_.short_name(record);
      if (!name.starts_with(folder.name) || !name.ends_with(folder.config)) continue;
      const std::size_t ends = folder.name.size() + folder.config.size();
      if (name.size() < ends) continue;
      configs_.push_back(
          {&folder, &record, std::string(name.substr(folder.name.size(), name.size() - ends))});
    }
  }
  if (!configs_.empty()) return {};
  for (const zip::Record& record : directory_.records())
    for (const Folder& folder : folders)
      if (const std::string_view name = directory_.short_name(record);
          name.starts_with(folder.name) && name.ends_with(".pt"))
        return failure(
            ErrorCode::unsupported,
            "is a .pt2 archive whose tensors are in a checkpoint in the archive, record " +
                bytes::quote(record.full_name()) +
                ", as torch 2.8 writes it; a newer torch's has a record for each",
            record.header_offset);
  if (directory_.find("archive_version") != nullptr) return {};
  return failure(ErrorCode::unsupported,
                 "is a .pt2 archive that does not say which tensors it has");
}

// Builds the tree, the dict {record: document}.
Result<void> ExportedParser::read_configs() {
  TRY(find_configs());
  std::uint64_t left = options_.limits.pickle_bytes;
  std::uint64_t text_bytes = 0;
  for (const Config& config : configs_) text_bytes += std::min(left, config.record->size);
  value::Builder build(memory_,
                       {options_.limits.base_memory + 5 * text_bytes, options_.limits.depth});
  std::vector<value::Cell> items;
  for (const Config& config : configs_) {
    TRY_ASSIGN(const zip::RecordBytes content,
               zip::read_record(directory_, *config.record, *input_.cache, left));
    left -= content.bytes.size();
    Result<value::Cell> document = json::add_document(
        build, {reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()});
    if (!document) {
      Error error = std::move(document.error());
      error.message = "record " + bytes::quote(config.record->full_name()) + ": " + error.message;
      const bool is_in_file = config.record->method == zip::Method::stored;
      if (error.file_offset != Error::no_offset)
        error.file_offset =
            is_in_file ? error.file_offset + content.file_offset : config.record->header_offset;
      return tl::unexpected<Error>(std::move(error));
    }
    items.push_back(build.string(directory_.short_name(*config.record)));
    items.push_back(*document);
  }
  const value::Cell root = build.dict(items);
  TRY_ASSIGN(parsed_.tree, std::move(build).finish(root));
  return {};
}

Result<void> ExportedParser::add_config(const Config& config, const Value& root) {
  const Value entries = field(field(root, directory_.short_name(*config.record)), "config");
  if (entries.kind() != Value::Kind::dict)
    return failure(
        ErrorCode::corrupt,
        "record " + bytes::quote(config.record->full_name()) + " has no object \"config\"",
        config.record->header_offset);
  std::uint32_t path = 0;
  if (has_models()) {
    // The model's name is not in the tree's text; its record's name begins with it.
    PathNode node;
    const std::string_view record = directory_.short_name(*config.record);
    for (const auto& [key, document] : root.items()) {
      if (key.string() != record) continue;
      node.key = key.cell();
      node.key.payload += config.folder->name.size();
      node.key.count = static_cast<std::uint32_t>(config.model.size());
    }
    node.depth = 1;
    node.prefix_bytes = config.model.size() + 1;
    path = static_cast<std::uint32_t>(table_.paths.size());
    table_.paths.push_back(node);
  }
  for (const auto& [key, entry] : entries.items()) TRY(add_tensor(config, key, entry, path));
  return {};
}

Result<void> ExportedParser::add_tensor(const Config& config, const Value& key, const Value& entry,
                                        std::uint32_t path) {
  const std::string_view name = key.string().value_or("");
  const std::optional<std::string_view> record = field(entry, "path_name").string();
  const Value meta = field(entry, "tensor_meta");
  if (!record) return corrupt(config, name, "has no path_name");
  const bool is_strided = field(meta, "layout").integer() == strided_layout;
  if (field(entry, "use_pickle").boolean().value_or(false) || meta.is_none() || !is_strided) {
    parsed_.facts.unsupported.emplace_back(name);
    return {};
  }
  if (table_.tensors.size() == options_.limits.tensors)
    return failure(
        ErrorCode::limit_exceeded,
        "the archive has more than " + std::to_string(options_.limits.tensors) + " tensors");
  TensorSpec spec{};
  const std::optional<DType> dtype = dtype_of(field(meta, "dtype").integer());
  if (!dtype) return corrupt(config, name, "has a dtype that is not known");
  spec.dtype = *dtype;
  TRY_ASSIGN(spec.storage, storage_of(config, *record, name));
  const std::optional<std::int64_t> offset = number_of(field(meta, "storage_offset"));
  if (!offset) return corrupt(config, name, "has no storage_offset");
  spec.storage_offset = *offset;
  TRY(read_dims(config, meta, name, spec));
  TRY_ASSIGN(spec.location, location_of(field(meta, "device")));
  if (field(meta, "requires_grad").boolean().value_or(false))
    spec.flags |= TensorSpec::requires_grad;
  if (config.folder->has_parameters)
    spec.flags |= field(entry, "is_param").boolean().value_or(false) ? TensorSpec::parameter
                                                                     : TensorSpec::buffer;
  spec.path = path;
  spec.key = key.cell();
  table_.count_names(path, 1, name.size(), false);
  table_.count_dims(spec.dims, spec.rank);
  ++table_.tensor_count;
  table_.tensors.push_back(spec);
  return {};
}

// A record is a whole storage, which several tensors may share.
Result<std::uint32_t> ExportedParser::storage_of(const Config& config, std::string_view record,
                                                 std::string_view tensor) {
  if (record.find('/') != std::string_view::npos)
    return corrupt(config, tensor, "lies in " + bytes::quote(record) + ", expected no slash");
  const std::string name = std::string(config.folder->name).append(record);
  const zip::Record* const found = directory_.find(name);
  if (found == nullptr)
    return corrupt(config, tensor,
                   "lies in record " + bytes::quote(name) + ", which the archive does not have");
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  if (found->size > most) return corrupt(config, tensor, "lies in a record that is too large");
  table_.owned_keys.push_back(name);
  return table_.storages.intern(table_.owned_keys.back(), static_cast<std::int64_t>(found->size),
                                DType::uint8, config.record->header_offset);
}

Result<void> ExportedParser::read_dims(const Config& config, const Value& meta,
                                       std::string_view tensor, TensorSpec& spec) {
  const Value sizes = field(meta, "sizes");
  const Value strides = field(meta, "strides");
  if (sizes.kind() != Value::Kind::list || strides.kind() != Value::Kind::list ||
      sizes.size() != strides.size())
    return corrupt(config, tensor,
                   "has " + std::to_string(sizes.size()) + " sizes and " +
                       std::to_string(strides.size()) + " strides");
  if (sizes.size() > std::min<std::uint32_t>(options_.limits.rank, 255))
    return failure(ErrorCode::limit_exceeded,
                   "tensor " + bytes::quote(tensor) + " has " + std::to_string(sizes.size()) +
                       " dimensions, the limit is " + std::to_string(options_.limits.rank),
                   config.record->header_offset);
  std::vector<std::int64_t>& dims = table_.owned_dims.emplace_back();
  for (const Value& from : {sizes, strides})
    for (const Value& dim : from.elements()) {
      const std::optional<std::int64_t> number = number_of(dim);
      if (!number) return corrupt(config, tensor, "has a size or stride that is no number");
      dims.push_back(*number);
    }
  spec.dims = dims.data();
  spec.rank = static_cast<std::uint8_t>(sizes.size());
  return {};
}

// Returns "cpu" or "cuda:0".
Result<std::uint16_t> ExportedParser::location_of(const Value& device) {
  std::string location(field(device, "type").string().value_or("cpu"));
  if (const auto index = field(device, "index").integer()) location += ":" + std::to_string(*index);
  for (std::size_t i = 0; i < locations_.size(); ++i)
    if (locations_[i] == location) return static_cast<std::uint16_t>(i);
  constexpr std::size_t most = 64;
  if (locations_.size() == most)
    return failure(ErrorCode::limit_exceeded, "the archive names more than 64 devices");
  locations_.push_back(std::move(location));
  table_.locations.push_back(locations_.back());
  return static_cast<std::uint16_t>(locations_.size() - 1);
}

Result<void> ExportedParser::place(const ArchiveRecords& records) {
  TRY_ASSIGN(PlacedStorages storages, place_storages(directory_, table_.storages.storages(),
                                                     records, input_, options_, stats_, memory_));
  parsed_.compressed = std::move(storages.compressed);
  TRY_ASSIGN(parsed_.catalog, make_catalog({*parsed_.tree, table_, storages.extents,
                                            records.is_foreign(), 0, input_.copies_base},
                                           memory_));
  input_.release(stats_);
  return {};
}

void ExportedParser::describe(ArchiveRecords records) {
  CheckpointInfo& facts = parsed_.facts;
  facts.format = Format::pt2;
  facts.names_torch_safe_only = true;  // the file names no globals
  facts.version = records.version;
  facts.byteorder = records.big_endian ? "big" : "little";
  facts.byteorder_assumed = records.byte_order_assumed;
  facts.storage_alignment = records.storage_alignment;
  for (const Config& config : configs_) facts.pickle_bytes += config.record->size;
}

}  // namespace

Result<Parsed> parse_exported(format::Input& input, const zip::Directory& directory,
                              ArchiveRecords records, const OpenOptions& options, OpenStats& stats,
                              std::pmr::memory_resource& memory) {
  return ExportedParser(input, directory, options, stats, memory).run(std::move(records));
}

}  // namespace weightmap::torch
