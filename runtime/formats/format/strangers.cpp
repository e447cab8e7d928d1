#include "runtime/formats/format/strangers.hpp"

#include <algorithm>
#include <string>

#include "runtime/formats/format/listed_names.hpp"

namespace weightmap::format {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view onnx =
    "is a model of ONNX; load it with onnx, and save its initializers as safetensors";
constexpr std::string_view core_ml =
    "is a model of Core ML (.mlmodel); load it with coremltools, or take the model that it was "
    "made of";
constexpr std::string_view saved_model =
    "is the graph of a SavedModel of TensorFlow; load its folder with tensorflow, and save the "
    "variables as safetensors";
constexpr std::string_view graph =
    "is a graph of TensorFlow (GraphDef); load it with tensorflow, and save its constants as "
    "safetensors";
constexpr std::string_view checkpoint_index =
    "is the index of a checkpoint of TensorFlow; load it with tf.train.load_checkpoint, and save "
    "the "
    "variables as safetensors";
constexpr std::string_view open_vino =
    "is a network of OpenVINO, whose weights are in the .bin beside it; read it with openvino, or "
    "take the model that it was made of";
constexpr std::string_view vectors =
    "has the vectors of word2vec in binary; load it with gensim, and save them as safetensors";
constexpr std::string_view message_pack =
    "is msgpack, as flax and spaCy write it; load it with the program that wrote it (flax: "
    "flax.serialization.msgpack_restore), and save its arrays as safetensors";
constexpr std::string_view ubjson =
    "is UBJSON, as XGBoost writes models (.ubj); load it with xgboost";

struct Field {  // of a message of protocol buffers
  std::uint64_t number;
  std::uint64_t value = 0;      // of a number
  std::string_view bytes = {};  // of a text or a message, as far as they are there
  bool is_number = false;
};

std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !text.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(text.front());
    text.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Numbers and what has a length; the messages that are told here have no other fields in front.
std::optional<Field> take_field(std::string_view& text) noexcept {
  const std::optional<std::uint64_t> tag = take_number(text);
  if (!tag || *tag >> 3 == 0) return std::nullopt;
  const std::optional<std::uint64_t> value = take_number(text);
  if (!value) return std::nullopt;
  if ((*tag & 7) == 0) return Field{*tag >> 3, *value, {}, true};
  if ((*tag & 7) != 2) return std::nullopt;
  const std::string_view bytes = text.substr(0, *value);
  text.remove_prefix(bytes.size());
  return Field{*tag >> 3, *value, bytes, false};
}

// The first field of a message, if it is this one and has a length.
std::optional<std::string_view> first_field(std::string_view message,
                                            std::uint64_t number) noexcept {
  const std::optional<Field> field = take_field(message);
  if (!field || field->is_number || field->number != number) return std::nullopt;
  return field->bytes;
}

bool is_text(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= ' ' && c != '\x7f'; });
}

// Models begin with the version of their format, a small number.
std::string_view name_versioned(std::string_view head) noexcept {
  const std::optional<Field> version = take_field(head);
  if (!version || version->number != 1 || !version->is_number || version->value - 1 >= 64)
    return {};
  const std::optional<Field> second = take_field(head);
  if (!second || second->is_number) return {};
  if (second->number == 7) return first_field(second->bytes, 1) ? onnx : std::string_view();
  if (second->number != 2) return {};
  if (is_text(second->bytes)) return onnx;  // the program that wrote it
  const std::optional<std::string_view> inner = first_field(second->bytes, 1);
  if (!inner) return {};
  if (const auto name = first_field(*inner, 1); name && is_text(*name)) return core_ml;
  return version->value == 1 ? saved_model : std::string_view();
}

// Nodes, each a name, an operation, and more.
bool is_graph(std::string_view head) noexcept {
  std::optional<std::string_view> node = first_field(head, 1);
  if (!node) return false;
  const std::optional<Field> name = take_field(*node);
  const std::optional<Field> operation = take_field(*node);
  return name && name->number == 1 && is_text(name->bytes) && operation && operation->number == 2 &&
         is_text(operation->bytes);
}

// A map whose first key is a text.
bool is_message_pack(std::string_view head, std::uint64_t file_bytes) noexcept {
  if (head == "\x80") return file_bytes == 1;
  const auto first = head.empty() ? 0 : static_cast<std::uint8_t>(head.front());
  const std::size_t key = first > 0x80 && first < 0x90 ? 1
                          : first == 0xde              ? 3
                          : first == 0xdf              ? 5
                                                       : 0;
  if (key == 0 || head.size() <= key + 1) return false;
  const auto mark = static_cast<std::uint8_t>(head[key]);
  if (mark == 0xd9) return is_text(head.substr(key + 2, static_cast<std::uint8_t>(head[key + 1])));
  return mark > 0xa0 && mark < 0xc0 && is_text(head.substr(key + 1, mark - 0xa0));
}

// "3 16\n", a word, a blank, and numbers as they are in memory.
bool is_word2vec(std::string_view head) noexcept {
  const std::string_view line = head.substr(0, std::min<std::size_t>(head.find('\n'), 32));
  const std::size_t blank = line.find(' ');
  const auto is_count = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (blank == std::string_view::npos || line.size() >= head.size() || head[line.size()] != '\n' ||
      !is_count(line.substr(0, blank)) || !is_count(line.substr(blank + 1)))
    return false;
  const std::string_view rest = head.substr(line.size() + 1);
  return rest.find(' ') != std::string_view::npos && rest.find('\0') != std::string_view::npos;
}

bool is_open_vino(std::string_view head) noexcept {
  return head.starts_with("<?xml") && head.find("<net ") != std::string_view::npos;
}

bool has_record(const zip::Directory& directory, std::string_view name) {
  return std::ranges::any_of(directory.records(),
                             [&](const zip::Record& record) { return record.full_name() == name; });
}

}  // namespace

bool begins_ubjson(std::string_view head) noexcept {
  return head.size() > 1 && head[0] == '{' && "iUIlL"sv.find(head[1]) != std::string_view::npos;
}

std::string_view name_stranger(std::string_view head, std::string_view tail,
                               std::uint64_t file_bytes) noexcept {
  if (tail == "\x57\xfb\x80\x8b\x24\x75\x47\xdb"sv) return checkpoint_index;
  if (begins_ubjson(head)) return ubjson;
  if (is_open_vino(head)) return open_vino;
  if (is_word2vec(head)) return vectors;
  if (is_message_pack(head, file_bytes)) return message_pack;
  if (const std::string_view model = name_versioned(head); !model.empty()) return model;
  return is_graph(head) ? graph : std::string_view();
}

std::string name_archive(const zip::Directory& directory) {
  if (has_record(directory, "schema.json"))
    return "is a model of skops; load it with skops.io.load, and look at its types with "
           "skops.io.get_untrusted_types first";
  if (has_record(directory, "model.weights.h5"))
    return "is a model of Keras (.keras); load it with keras, and save its weights as safetensors";
  const bool is_package = std::ranges::any_of(directory.records(), [](const zip::Record& record) {
    return record.full_name().ends_with("/.data/extern_modules");
  });
  if (is_package)
    return "is a package of torch.package, which has programs in it; if you trust them, load the "
           "model with torch.package.PackageImporter, and save its state_dict() with torch.save";
  const bool is_served = has_record(directory, "MAR-INF/MANIFEST.json");
  ListedNames names;
  bool is_stored = false;  // a member that can be mapped
  for (const zip::Record& record : directory.records()) {
    const std::string_view name = record.full_name();
    if (is_served ? name.starts_with("MAR-INF/") : !name.ends_with(".gguf")) continue;
    is_stored = is_stored || record.method == zip::Method::stored;
    names.add(name);
  }
  if (is_served)
    return "is a model archive of TorchServe (.mar) with " + names.text() +
           (is_stored ? "; open the weights in it as FILE//MEMBER"
                      : "; unzip it, and open the file of weights");
  if (names.count() == 0) return {};
  return "is a llamafile, or another archive with a GGUF model in it; open that as FILE//MEMBER: " +
         names.text();
}

}  // namespace weightmap::format
