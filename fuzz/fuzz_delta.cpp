// Applies any bytes as a frame to a tensor, in windows of two sizes, and any index with any shard
// as a delta to a model: refused, or the result is that of a simple reader.
//
// The first byte chooses: 0 a frame of `xor` or 1 of `overwrite`, behind a byte with the number of
// 16 bytes that the tensor has; 2 what such a frame of `overwrite` holds; 3 an index, behind its
// length in two bytes, and a shard.
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/json_mutator.hpp"
#include "fuzz/look.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/process_folder.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/frame.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/delta.hpp"

namespace {

using namespace weightmap;
namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

enum Mode : std::uint8_t { xor_frame, overwrite_frame, overwritten, folder, mode_count };

Mode mode_of(std::span<const std::byte> input) {
  return input.empty() ? xor_frame
                       : static_cast<Mode>(std::to_integer<std::uint8_t>(input[0]) % mode_count);
}

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

Result<void> apply(DeltaEncoding encoding, const bytes::ByteSource& frame, std::size_t window,
                   Bytes& tensor) {
  const ByteRange all{0, frame.size()};
  auto change = delta::Change::open(encoding, frame, all, tensor.size());
  if (!change) return tl::unexpected(change.error());
  for (std::size_t at = 0; at < tensor.size(); at += window) {
    const std::span rest = std::span(tensor).subspan(at);
    const Result<void> done = (*change)->apply(rest.first(std::min(window, rest.size())));
    if (!done) return done;
  }
  return (*change)->finish();
}

// zstd's own call for whole frames; nullopt if it refuses the frame, or more than `most` come.
std::optional<Bytes> content_of(std::span<const std::byte> frame, std::size_t most) {
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) return std::nullopt;
  Bytes content(most + 1);
  const std::size_t size =
      ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0 || size > most) return std::nullopt;
  content.resize(size);
  return content;
}

// What a frame with this content makes of the tensor; nullopt: it cannot be one.
std::optional<Bytes> combined(const Bytes& content, Bytes tensor) {
  if (content.size() != tensor.size()) return std::nullopt;
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] ^= content[i];
  return tensor;
}

std::optional<Bytes> overwritten_by(const Bytes& content, Bytes tensor) {
  const auto number = [&content](std::size_t index) {
    return bytes::load_le<std::uint32_t>(content.data() + 4 * index);
  };
  if (content.size() < 4 || content.size() != 4 + 5 * std::uint64_t{number(0)}) return std::nullopt;
  const std::size_t count = number(0);
  for (std::size_t i = 0; i < count; ++i) {
    if (number(1 + i) >= tensor.size() || (i > 0 && number(1 + i) <= number(i)))
      return std::nullopt;
    tensor[number(1 + i)] = content[4 + 4 * count + i];
  }
  return tensor;
}

void check_frame(DeltaEncoding encoding, std::span<const std::byte> frame, std::size_t size) {
  const bytes::MemorySource source(frame);
  constexpr std::size_t small_window = 37;
  Bytes whole = pattern(size), in_pieces = whole;
  const Result<void> once = apply(encoding, source, delta::window_bytes, whole);
  const Result<void> often = apply(encoding, source, small_window, in_pieces);
  fuzz::require(once.has_value() == often.has_value(), "the size of windows decides");
  if (!once) return fuzz::check_refusal(once.error(), frame.size());
  const std::optional<Bytes> content = content_of(frame, 4 + 5 * size);
  fuzz::require(content.has_value(), "a frame is taken that zstd refuses");
  const bool is_xor = encoding == DeltaEncoding::xor_bytes;
  const auto expected =
      is_xor ? combined(*content, pattern(size)) : overwritten_by(*content, pattern(size));
  fuzz::require(expected == whole && whole == in_pieces, "the tensor has other bytes");
  const auto memory = delta::check_frame(encoding, source, {0, frame.size()}, size);
  fuzz::require(memory.has_value(), "a frame is refused before it is read, and then taken");
}

void check_content(std::span<const std::byte> content, std::size_t size) {
  delta::FrameWriter writer(1, content.size());
  const Result<void> added = writer.add(content);
  const Result<Bytes> frame = writer.finish();
  fuzz::require(added && frame, "a frame cannot be written");
  check_frame(DeltaEncoding::overwrite, *frame, size);
  Bytes tensor = pattern(size);
  const bool is_taken =
      apply(DeltaEncoding::overwrite, bytes::MemorySource(*frame), tensor.size(), tensor)
          .has_value();
  const Bytes given(content.begin(), content.end());
  fuzz::require(size == 0 || is_taken == overwritten_by(given, pattern(size)).has_value(),
                "what a frame may hold is not what the format says");
}

// A model, and a place for a delta.
class Files {
 public:
  Files() {
    fs::create_directories(base());
    fs::create_directories(delta());
    Bytes content;
    const std::string_view header = R"({"a":{"dtype":"U8","shape":[32],"data_offsets":[0,32]},)"
                                    R"("b":{"dtype":"F32","shape":[2,4],"data_offsets":[32,64]}})";
    bytes::ByteSink sink(content);
    sink.u64(header.size());
    sink.text(header);
    sink.put(pattern(64));
    folder_.write("base/model.safetensors", content);
  }
  const fs::path& path() const { return folder_.path(); }
  fs::path base() const { return path() / "base"; }
  fs::path delta() const { return path() / "delta"; }
  fs::path made() const { return path() / "made"; }
  void write_delta(std::span<const std::byte> index, std::span<const std::byte> shard) const {
    folder_.write("delta/model.safetensors.index.json", index);
    folder_.write("delta/s.safetensors", shard);
  }

 private:
  fuzz::ProcessFolder folder_;
};

std::size_t index_bytes(std::span<const std::byte> input) {
  if (input.size() < 2) return 0;
  return std::min<std::size_t>(bytes::load_le<std::uint16_t>(input.data()), input.size() - 2);
}

void check_folder(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  static const Files files;
  const std::size_t length = index_bytes(input);
  files.write_delta(input.subspan(2, length), input.subspan(2 + length));
  ApplyOptions options;
  options.durable = false;
  options.threads = 1;
  options.open.limits = fuzz::small_limits().limits;
  const fs::path deltas[] = {files.delta()};
  const Result<ApplyReport> report = apply_delta(files.base(), deltas, files.made(), options);
  const auto count = std::distance(fs::directory_iterator(files.path()), fs::directory_iterator());
  fuzz::require(count == (report ? 3 : 2), "a call leaves something, or nothing");
  if (!report) return fuzz::check_refusal(report.error(), input.size());
  const Result<Checkpoint> old = Checkpoint::open(files.base());
  const Result<Checkpoint> made = Checkpoint::open(files.made());
  fuzz::require(old && made && made->tensors().size() == old->tensors().size(),
                "the new version has other tensors");
  fuzz::require(model_version(files.made()) == report->version, "it has another version");
  fuzz::look_at(*made);
  fs::remove_all(files.made());
}

void check(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  const std::size_t size = 16 * std::to_integer<std::size_t>(input[1]);
  switch (mode_of(input)) {
    case xor_frame:
      return check_frame(DeltaEncoding::xor_bytes, input.subspan(2), size);
    case overwrite_frame:
      return check_frame(DeltaEncoding::overwrite, input.subspan(2), size);
    case overwritten:
      return check_content(input.subspan(2), size);
    default:
      return check_folder(input.subspan(1));
  }
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An index usually stays JSON. All else is mutated as bytes.
Bytes mutate(std::span<const std::byte> input, fuzz::Random& random) {
  Bytes made(input.begin(), input.end());
  if (mode_of(input) != folder || input.size() < 4 || random.once_in(3)) {
    fuzz::mutate_bytes(made);
    return made;
  }
  const std::span<const std::byte> rest = input.subspan(1);
  const std::size_t length = index_bytes(rest);
  std::string index = text_of(rest.subspan(2, length));
  fuzz::mutate_json(index, random);
  made.assign(input.begin(), input.begin() + 1);
  bytes::ByteSink sink(made);
  sink.u16(static_cast<std::uint16_t>(index.size()));
  sink.text(index);
  sink.text(text_of(rest.subspan(2 + length)));
  return made;
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(mutate)
