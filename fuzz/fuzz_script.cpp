// Puts any pickles and code into a torch.jit.save archive: refused, or all of it can be read.
//
// The input: the two pickles, the code, and the lengths of the storages. Records and offsets are
// laid out around it.
//
//   u8 count | u16 size[count]           of data/0, data/1, ...
//   u8 count | u16 size[count]           of constants/0, ...
//   u32 length | data.pkl
//   u32 length | constants.pkl
//   { u8 length | name | u32 length | text }   of code/<name>.py, up to the end
//
// Little-endian; missing fields at the end are zero or empty. seeds.py writes this format, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/look_checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/pickle_mutator.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "tests/support/archive_builder.hpp"

namespace {

using namespace weightmap;

struct Input {
  struct Code {
    std::string name;
    std::string text;
  };
  std::vector<std::uint16_t> data_sizes;
  std::vector<std::uint16_t> constant_sizes;
  std::string data;
  std::string constants;
  std::vector<Code> code;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes)
      : rest_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  bool is_at_end() const { return rest_.empty(); }
  std::uint32_t number(std::size_t width) {
    const std::string_view bytes = text(width);
    std::uint32_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
    return value;
  }
  std::string_view text(std::size_t length) {
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::vector<std::uint16_t> sizes() {
    std::vector<std::uint16_t> sizes(number(1));
    for (std::uint16_t& size : sizes) size = static_cast<std::uint16_t>(number(2));
    return sizes;
  }

 private:
  std::string_view rest_;
};

void put_sizes(const std::vector<std::uint16_t>& sizes, std::vector<std::byte>& out) {
  const std::size_t count = std::min<std::size_t>(sizes.size(), 255);
  out.push_back(static_cast<std::byte>(count));
  for (std::size_t i = 0; i < count; ++i) bytes::ByteSink(out).u16(sizes[i]);
}

void put_text(std::string_view text, std::vector<std::byte>& out) {
  bytes::ByteSink sink(out);
  sink.u32(text.size());
  sink.text(text);
}

void add_storages(const std::string& folder, const std::vector<std::uint16_t>& sizes,
                  test::ArchiveBuilder& builder) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    builder.add(folder + std::to_string(i), std::string(sizes[i], static_cast<char>(i)));
}

Input decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Input input;
  input.data_sizes = reader.sizes();
  input.constant_sizes = reader.sizes();
  input.data = reader.text(reader.number(4));
  input.constants = reader.text(reader.number(4));
  while (!reader.is_at_end()) {
    const std::string name(reader.text(reader.number(1)));
    input.code.push_back({name, std::string(reader.text(reader.number(4)))});
  }
  return input;
}

std::vector<std::byte> encode(const Input& input) {
  std::vector<std::byte> out;
  put_sizes(input.data_sizes, out);
  put_sizes(input.constant_sizes, out);
  put_text(input.data, out);
  put_text(input.constants, out);
  for (const Input::Code& code : input.code) {
    const std::string_view name = std::string_view(code.name).substr(0, 255);
    out.push_back(static_cast<std::byte>(name.size()));
    bytes::ByteSink(out).text(name);
    put_text(code.text, out);
  }
  return out;
}

std::vector<std::byte> lay_out(const Input& input) {
  test::ArchiveBuilder builder;
  builder.add("m/data.pkl", input.data).add("m/byteorder", "little");
  add_storages("m/data/", input.data_sizes, builder);
  for (const Input::Code& code : input.code) builder.add("m/code/" + code.name + ".py", code.text);
  builder.add("m/constants.pkl", input.constants);
  add_storages("m/constants/", input.constant_sizes, builder);
  builder.add("m/version", "3\n");
  return builder.finish();
}

void check(std::span<const std::byte> input) {
  static fuzz::MemoryFile file;
  file.set(lay_out(decode(input)));
  const Result<Checkpoint> opened =
      Checkpoint::open_descriptor(file.descriptor(), fuzz::small_limits());
  if (!opened) return fuzz::require(!opened.error().message.empty(), "a refusal without a word");
  fuzz::look_at(*opened);
}

void change_pickle(std::string& pickle, fuzz::Random& random) {
  const auto changed = fuzz::mutate_pickle(std::as_bytes(std::span(pickle)), random);
  pickle.assign(reinterpret_cast<const char*>(changed.data()), changed.size());
}

void change_sizes(std::vector<std::uint16_t>& sizes, fuzz::Random& random) {
  if (sizes.empty() || random.once_in(4)) sizes.push_back(0);
  sizes[random.below(sizes.size())] = static_cast<std::uint16_t>(random.number() % 1024);
}

std::vector<std::byte> mutate(std::span<const std::byte> bytes, fuzz::Random& random) {
  Input input = decode(bytes);
  switch (random.below(12)) {
    case 0:
      change_sizes(input.data_sizes, random);
      break;
    case 1:
      change_sizes(input.constant_sizes, random);
      break;
    case 2:
      if (input.code.empty()) input.code.push_back({"__torch__", {}});
      fuzz::mutate_bytes(input.code[random.below(input.code.size())].text);
      break;
    case 3:
    case 4:
      change_pickle(input.constants, random);
      break;
    default:
      change_pickle(input.data, random);
  }
  return encode(input);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(mutate)
