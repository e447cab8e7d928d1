#include "fuzz/script_input.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/base/bytes/byte_sink.hpp"
#include "tests/support/archive_builder.hpp"

namespace weightmap::fuzz {
namespace {

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

}  // namespace

ScriptInput decode_script(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ScriptInput input;
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

std::vector<std::byte> encode_script(const ScriptInput& input) {
  std::vector<std::byte> out;
  put_sizes(input.data_sizes, out);
  put_sizes(input.constant_sizes, out);
  put_text(input.data, out);
  put_text(input.constants, out);
  for (const ScriptInput::Code& code : input.code) {
    const std::string_view name = std::string_view(code.name).substr(0, 255);
    out.push_back(static_cast<std::byte>(name.size()));
    bytes::ByteSink(out).text(name);
    put_text(code.text, out);
  }
  return out;
}

std::vector<std::byte> lay_out_script(const ScriptInput& input) {
  test::ArchiveBuilder builder;
  builder.add("m/data.pkl", input.data).add("m/byteorder", "little");
  add_storages("m/data/", input.data_sizes, builder);
  for (const ScriptInput::Code& code : input.code)
    builder.add("m/code/" + code.name + ".py", code.text);
  builder.add("m/constants.pkl", input.constants);
  add_storages("m/constants/", input.constant_sizes, builder);
  builder.add("m/version", "3\n");
  return builder.finish();
}

}  // namespace weightmap::fuzz
