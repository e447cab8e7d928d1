// Makes folders of torch.distributed.checkpoint: the metadata as opcodes, each field of which a
// test may replace, and the items that it leads to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::test {

using Sizes = std::vector<std::int64_t>;
using Fields = std::vector<std::pair<std::string, std::string>>;  // of a dataclass, as opcodes

inline const std::string none = "N";
inline const std::string metadata_module = "torch.distributed.checkpoint.metadata";

inline std::string torch_size(const Sizes& values) {
  return global("torch", "Size") + "(" + tuple(values) + "tR";
}
inline std::string list(const std::vector<std::string>& items) {
  std::string text = "](";
  for (const std::string& item : items) text += item;
  return text + "e";
}
inline std::string state_of(const Fields& fields) {
  Fields named;
  for (const auto& [name, value] : fields) named.emplace_back(unicode(name), value);
  return dict(named);
}
inline std::string dataclass(const std::string& name, const Fields& fields,
                             const std::string& module = metadata_module) {
  return global(module, name) + ")\x81" + state_of(fields) + "b";
}
inline std::string properties(const std::string& dtype, const std::string& layout = "strided",
                              bool requires_grad = false) {
  const std::string of =
      global("torch.serialization", "_get_layout") + "(" + unicode("torch." + layout) + "tR";
  return global(metadata_module, "TensorProperties") + ")\x81(" + global("torch", dtype) + of +
         (requires_grad ? "\x88" : "\x89") + "tb";
}
inline std::string chunk(const Sizes& offsets, const Sizes& sizes) {
  return dataclass("ChunkStorageMetadata",
                   {{"offsets", torch_size(offsets)}, {"sizes", torch_size(sizes)}});
}
inline std::string tensor_metadata(const Sizes& sizes, const std::vector<std::string>& chunks,
                                   const std::string& of = properties("float32")) {
  return dataclass("TensorStorageMetadata",
                   {{"properties", of}, {"size", torch_size(sizes)}, {"chunks", list(chunks)}});
}
inline std::string index_of(const std::string& name, const Sizes& offsets) {
  return dataclass("MetadataIndex", {{"fqn", unicode(name)}, {"offset", torch_size(offsets)}});
}
inline std::string place_of(const std::string& file, std::int64_t offset, std::int64_t length) {
  return dataclass(
      "_StorageInfo",
      {{"relative_path", unicode(file)}, {"offset", integer(offset)}, {"length", integer(length)}},
      "torch.distributed.checkpoint.filesystem");
}
inline std::string metadata_of(const std::string& tensors, const std::string& places,
                               const std::string& paths = none) {
  return "\x80\x02" +
         dataclass("Metadata", {{"state_dict_metadata", tensors},
                                {"planner_data", paths},
                                {"storage_data", places},
                                {"version", unicode("1.0.0")}}) +
         ".";
}

struct ElementType {
  std::string dtype = "float32";
  std::string storage = "FloatStorage";
  std::size_t bytes = 4;
};
inline const ElementType uint8_elements{"uint8", "ByteStorage", 1};

// What torch.save writes of one tensor.
inline std::string item_of(const std::string& elements, const Sizes& sizes,
                           const ElementType& type = {}, const Sizes& strides = {},
                           const std::string& byteorder = "little") {
  Sizes row_major(sizes.size(), 1);
  for (std::size_t dim = sizes.size(); dim-- > 1;)
    row_major[dim - 1] = row_major[dim] * std::max<std::int64_t>(1, sizes[dim]);
  Tensor tensor;
  tensor.storage_type = global("torch", type.storage);
  tensor.numel = integer(static_cast<std::int64_t>(elements.size() / type.bytes));
  tensor.sizes = tuple(sizes);
  tensor.strides = tuple(strides.empty() ? row_major : strides);
  const Bytes archive = archive_of("\x80\x02" + tensor.text() + ".", {elements}, byteorder);
  return {reinterpret_cast<const char*>(archive.data()), archive.size()};
}

// Items back to back in files, and the metadata of them.
class DcpFolder {
 public:
  struct Chunk {
    Sizes offsets;
    Sizes sizes;
    std::string elements;  // row-major, or as `strides` say
    std::string file = "__0_0.distcp";
    Sizes strides = {};
  };

  DcpFolder& add(const std::string& name, const Sizes& sizes, const std::vector<Chunk>& chunks,
                 const ElementType& type = {}, const std::string& of = "") {
    std::vector<std::string> listed;
    for (const Chunk& each : chunks) {
      put(name, each.offsets, item_of(each.elements, each.sizes, type, each.strides), each.file);
      listed.push_back(chunk(each.offsets, each.sizes));
    }
    tensors.emplace_back(unicode(name),
                         tensor_metadata(sizes, listed, of.empty() ? properties(type.dtype) : of));
    return *this;
  }
  // Any bytes as the item of a chunk.
  DcpFolder& put(const std::string& name, const Sizes& offsets, const std::string& item,
                 const std::string& file = "__0_0.distcp") {
    std::string& content = files[file];
    places.emplace_back(index_of(name, offsets),
                        place_of(file, static_cast<std::int64_t>(content.size()),
                                 static_cast<std::int64_t>(item.size())));
    content += item;
    return *this;
  }
  // Anything but a tensor, which `pickle` makes (opcodes without PROTO and STOP).
  DcpFolder& add_object(const std::string& name, const std::string& pickle,
                        const std::vector<std::string>& storages = {}) {
    const Bytes archive = archive_of("\x80\x02" + pickle + ".", storages);
    return put_object(name, {reinterpret_cast<const char*>(archive.data()), archive.size()});
  }
  // Any bytes as its item.
  DcpFolder& put_object(const std::string& name, const std::string& item,
                        const std::string& file = "__0_0.distcp") {
    put(name, {}, item, file);
    places.back().first = dataclass("MetadataIndex", {{"fqn", unicode(name)}, {"offset", none}});
    tensors.emplace_back(unicode(name), dataclass("BytesStorageMetadata", {}));
    return *this;
  }
  // The path of a name: keys as opcodes.
  DcpFolder& at(const std::string& name, const std::vector<std::string>& keys) {
    std::string all = "(";
    for (const std::string& key : keys) all += key;
    planned.emplace_back(unicode(name), all + "t");
    paths = dict(planned);
    return *this;
  }
  std::string metadata() const { return metadata_of(dict(tensors), dict(places), paths); }
  void write(const TemporaryFolder& folder, const std::string& name = ".metadata") const {
    for (const auto& [file, content] : files) folder.write(file, content);
    folder.write(name, metadata());
  }

  Fields tensors;  // names and what is said of them
  Fields places;
  Fields planned;  // by at()
  std::string paths = none;
  std::map<std::string, std::string> files;
};

}  // namespace weightmap::test
