#include "runtime/formats/format/identify.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/formats/format/strangers.hpp"
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

}  // namespace weightmap::format
