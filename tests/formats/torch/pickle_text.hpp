// Opcodes of pickles as text: what torch.save writes for a tensor, each field of which a test may
// replace.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/archive_builder.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::test {

using namespace std::string_literals;

inline std::string unicode(const std::string& text) {
  std::string length(4, '\0');
  const auto bytes = static_cast<std::uint32_t>(text.size());
  std::memcpy(length.data(), &bytes, 4);
  return "X" + length + text;
}
inline std::string integer(std::int64_t value) {
  std::string digits(8, '\0');
  std::memcpy(digits.data(), &value, 8);
  return "\x8a\x08" + digits;
}
inline std::string tuple(const std::vector<std::int64_t>& values) {
  std::string text = "(";
  for (std::int64_t value : values) text += integer(value);
  return text + "t";
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline const std::string no_hooks = "ccollections\nOrderedDict\n)R";

struct Tensor {
  std::string function = global("torch._utils", "_rebuild_tensor_v2");
  std::string storage_type = global("torch", "FloatStorage");
  std::string key = unicode("0");
  std::string numel = integer(16);
  std::string offset = integer(0);
  std::string sizes = tuple({4, 4});
  std::string strides = tuple({4, 1});
  std::string requires_grad = "\x89";
  std::string hooks = no_hooks;
  std::string extra = "";

  std::string storage() const {
    return "(" + unicode("storage") + storage_type + key + unicode("cpu") + numel + "tQ";
  }
  std::string arguments() const {
    return "(" + storage() + offset + sizes + strides + requires_grad + hooks + extra + "t";
  }
  std::string text() const { return function + arguments() + "R"; }
};

inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string text = "}(";
  for (const auto& [key, value] : items) text += key + value;
  return text + "u";
}
inline std::string named(const std::string& tensor) { return dict({{unicode("w"), tensor}}) + "."; }

// An archive of torch.save with this pickle and these storages.
inline Bytes archive_of(const std::string& pickle, const std::vector<std::string>& storages,
                        const std::string& byteorder = "little") {
  ArchiveBuilder builder;
  builder.add("archive/data.pkl", pickle).add("archive/byteorder", byteorder);
  for (std::size_t i = 0; i < storages.size(); ++i)
    builder.add("archive/data/" + std::to_string(i), storages[i]);
  return builder.add("archive/version", "3\n").finish();
}

// A checkpoint of such an archive, whose file is gone.
inline Result<Checkpoint> open_pickle(const std::string& pickle,
                                      const std::vector<std::string>& storages) {
  const TemporaryFolder folder;
  const Bytes archive = archive_of(pickle, storages);
  return Checkpoint::open(folder.write("model.pt", std::span<const std::byte>(archive)));
}

}  // namespace weightmap::test
