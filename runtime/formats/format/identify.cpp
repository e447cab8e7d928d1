#include "runtime/formats/format/identify.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/formats/format/listed_names.hpp"
#include "runtime/formats/format/tar.hpp"

namespace weightmap::format {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  ErrorCode code;
  std::string_view sentence;
};

constexpr ErrorCode other = ErrorCode::not_a_checkpoint;

constexpr std::string_view bzip2_magic = "BZh";
constexpr std::string_view xz_magic = "\xfd\x37zXZ";
constexpr std::string_view lz4_magic = "\x04\x22\x4d\x18";

constexpr std::array signatures = {
    Signature{0, "PYTORCH1"sv, ErrorCode::unsupported,
              "is a preview format of 2018 that torch itself no longer reads"},
    Signature{0, "\x1f\x8b"sv, other, "is compressed with gzip; decompress it first"},
    Signature{0, "7z\xbc\xaf\x27\x1c"sv, other, "is a 7z archive; unpack it first"},
    Signature{0, bzip2_magic, other, "is compressed with bzip2; decompress it first"},
    Signature{0, xz_magic, other, "is compressed with xz; decompress it first"},
    Signature{0, "\x28\xb5\x2f\xfd"sv, other, "is compressed with zstd; decompress it first"},
    Signature{0, lz4_magic, other, "is compressed with lz4; decompress it first"},
    Signature{0, "ZF0x"sv, other,
              "is compressed with zlib, as joblib did it before 0.10; load it with joblib and save "
              "it with compress=0"},
    Signature{257, "ustar"sv, other, "is a tar archive; open what is in it as FILE//MEMBER"},
    Signature{4, "PTMF"sv, other,
              "is a module for the lite interpreter of torch mobile, as a flatbuffer; save it "
              "without _use_flatbuffer, or as a state dict"},
    Signature{
        0, "\x89HDF"sv, other,
        "is an HDF5 file, as Keras writes models and weights (.h5); load it with keras or h5py, "
        "and save its arrays as safetensors"},
    Signature{0,
              "\x7f"
              "ELF"sv,
              other, "is an ELF program or library"},
    Signature{4, "TFL3"sv, other,
              "is a model of TensorFlow Lite (LiteRT); read it with ai_edge_litert"},
    Signature{
        4, "ET12"sv, other,
        "is a program of ExecuTorch (.pte); save the weights of the model that it was made of "
        "by torch.save or safetensors"},
    Signature{4, "FT01"sv, other,
              "is data of ExecuTorch (.ptd); save the weights of the model that it was made of by "
              "torch.save or safetensors"},
    Signature{64, "\xef\xbe\xad\xde"sv, other,  // of the first blob; of ML programs
              "has the weights of a model of Core ML (weight.bin of an .mlpackage); load that with "
              "coremltools, or take the model that it was made of"},
    Signature{
        0, "\xba\x16\x4f\x2f"sv, other,
        "is a model of fastText; load it with fasttext, and save its matrices as safetensors"},
};

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_with_tag(std::string_view text, std::string_view tag) noexcept {
  const std::size_t start = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (start == std::string_view::npos || text.size() - start < tag.size()) return false;
  return std::equal(
      tag.begin(), tag.end(), text.begin() + static_cast<std::ptrdiff_t>(start),
      [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

// Returns the real file's size, as a Git LFS pointer states it.
std::string lfs_size(std::string_view text) {
  constexpr std::string_view field = "\nsize ";
  const std::size_t at = text.find(field);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + field.size());
  const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  return " of a file of " + bytes::escape(digits, 20) + " bytes";
}

// A dictionary of 2^n, or 2^n + 2^(n - 1), a size or none, and the coder's first byte, which is
// zero. As liblzma takes xz's format `alone`, and joblib.dump(compress="lzma") writes it.
bool begins_lzma(std::string_view head) noexcept {
  if (head.size() < 14 || head[0] != ']' || head[13] != 0) return false;
  std::uint32_t dictionary = 0;
  for (std::size_t i = 4; i != 0; --i)
    dictionary = dictionary << 8 | static_cast<unsigned char>(head[i]);
  const std::string_view size = head.substr(5, 8);
  return std::popcount(dictionary & ~(std::bit_floor(dictionary) >> 1)) == 1 &&
         (size == "\xff\xff\xff\xff\xff\xff\xff\xff"sv || size.ends_with("\0\0\0"sv));
}

// True for a plausible length of the header, followed by an object.
bool begins_safetensors(std::string_view head) noexcept {
  constexpr std::size_t length_bytes = 8;
  if (head.size() <= length_bytes) return false;
  constexpr std::size_t high_bytes = 4;  // of the length
  if (head.substr(high_bytes, length_bytes - high_bytes) != "\0\0\0\0"sv) return false;
  head.remove_prefix(length_bytes);
  const std::size_t begin = head.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && head[begin] == '{';
}

Error foreign(ErrorCode code, std::string sentence) {
  return Error{code, std::move(sentence), Error::no_offset, {}};
}

constexpr std::string_view gguf_magic = "GGUF";
constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::string_view end_record = "PK\x05\x06";

// True if the file ends with an end record and exactly the comment that the record states. Elements
// of a stream may look like an end record, but then do not state the correct length.
bool ends_archive(std::string_view tail) noexcept {
  constexpr std::size_t without_comment = 22;
  for (std::size_t at = tail.rfind(end_record); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : tail.rfind(end_record, at - 1)) {
    if (tail.size() - at < without_comment) continue;
    const unsigned low = static_cast<unsigned char>(tail[at + 20]);
    const unsigned high = static_cast<unsigned char>(tail[at + 21]);
    if ((low | high << 8) == tail.size() - at - without_comment) return true;
  }
  return false;
}

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
    "the variables as safetensors";
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

bool begins_packed(std::string_view head) noexcept {
  const std::string_view block = head.substr(std::min<std::size_t>(4, head.size()));
  const bool is_bzip2 =
      head.starts_with(bzip2_magic) &&
      (block.starts_with("1AY&SY") || block.starts_with("\x17\x72\x45\x38\x50\x90"));
  return is_bzip2 || begins_lzma(head) || head.starts_with(xz_magic) || head.starts_with(lz4_magic);
}

// Two bytes that divide by 31, the third one of deflate; "x^2" is text.
bool begins_zlib(std::string_view head) noexcept {
  if (head.size() < 3 || head[0] != 'x') return false;
  const auto next = static_cast<unsigned char>(head[1]);
  const bool is_text = std::ranges::all_of(
      head.substr(1, 16), [](unsigned char c) { return std::isprint(c) != 0 || c == '\n'; });
  return ('x' * 256 + next) % 31 == 0 && !is_text;
}

Kind identify(std::span<const std::byte> head, std::span<const std::byte> tail,
              std::uint64_t file_bytes) noexcept {
  const std::string_view text = as_text(tail);
  if (ends_archive(text)) return Kind::zip;
  if (head.empty() && file_bytes != 0) return Kind::needs_head;
  if (begins_legacy_stream(head)) return Kind::legacy;
  if (const Kind kind = identify_head(head); kind != Kind::unknown) return kind;
  if (begins_pickle(head)) return Kind::pickle;
  if (begins_tar(head)) return Kind::unknown;  // whose last member may be an archive
  const bool may_be_archive =
      text.find(end_record) != std::string_view::npos || as_text(head).starts_with("PK\x03\x04");
  return may_be_archive ? Kind::zip : Kind::unknown;
}

Kind identify_head(std::span<const std::byte> head) noexcept {
  const std::string_view text = as_text(head);
  if (text.starts_with(gguf_magic)) return Kind::gguf;
  if (text.starts_with(npy_magic)) return Kind::npy;
  if (begins_safetensors(text)) return Kind::safetensors;
  return begins_with_tag(text, "{") && !begins_ubjson(text) ? Kind::json : Kind::unknown;
}

bool begins_legacy_stream(std::span<const std::byte> head) noexcept {
  constexpr std::string_view number = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."sv;
  constexpr std::string_view frame = "\x95\x0d\0\0\0\0\0\0\0"sv;  // from protocol 4 on
  std::string_view text = as_text(head);
  if (text.size() < 2 || text[0] != '\x80' || text[1] < 2 || text[1] > 5) return false;
  text.remove_prefix(2);
  if (text.starts_with(frame)) text.remove_prefix(frame.size());
  return text.starts_with(number);
}

bool begins_pickle(std::span<const std::byte> head) noexcept {
  const std::string_view text = as_text(head);
  return text.size() > 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5 && text[2] != 0;
}

std::optional<Error> describe_stranger(std::span<const std::byte> head, std::uint64_t file_bytes) {
  const std::string_view text = as_text(head);
  const std::string size = std::to_string(file_bytes);
  if (text.starts_with("version https://git-lfs"))
    return foreign(other, "is a Git LFS pointer" + lfs_size(text) +
                              ", not the file itself; fetch it with: git lfs pull");
  for (std::string_view tag : {"<!doctype html"sv, "<html"sv})
    if (begins_with_tag(text, tag))
      return foreign(other,
                     "is a web page (HTML), probably an error or login page that was saved "
                     "in place of the checkpoint");
  for (const Signature& known : signatures)
    if (text.size() >= known.offset && text.substr(known.offset).starts_with(known.bytes))
      return foreign(known.code, std::string(known.sentence));
  if (begins_zlib(text))
    return foreign(other,
                   "is compressed with zlib, as joblib.dump(compress=...) does it; load it with "
                   "joblib and save it with compress=0");
  if (begins_lzma(text)) return foreign(other, "is compressed with lzma; decompress it first");
  if (text.starts_with("PK\x03\x04"))
    return Error{ErrorCode::corrupt,
                 "is truncated: it begins as a zip archive, but its " + size +
                     " bytes end before the central directory does; the download or copy is "
                     "incomplete",
                 file_bytes,
                 {}};
  if (begins_safetensors(text)) return foreign(other, "is a safetensors file, which is no archive");
  if (text.starts_with(gguf_magic)) return foreign(other, "is a GGUF file, which is no archive");
  if (text.starts_with(npy_magic))
    return foreign(other, "is a numpy array (.npy), which is no archive");
  if (begins_with_tag(text, "{") && !begins_ubjson(text))
    return foreign(other, "is JSON text, which is no archive");
  if (std::all_of(head.begin(), head.end(), [](std::byte b) { return b == std::byte{0}; }))
    return foreign(other, "begins with " + std::to_string(head.size()) +
                              " zero bytes; a copy or download probably did not finish");
  if (begins_legacy_stream(head))
    return foreign(
        other, "is a legacy torch stream, which is no archive; weightmap convert makes one of it");
  if (begins_pickle(head)) return foreign(other, "is a bare pickle, which is no archive");
  return std::nullopt;
}

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
