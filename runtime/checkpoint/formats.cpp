#include "runtime/checkpoint/formats.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/try.hpp"
#include "runtime/format/identify.hpp"
#include "runtime/format/zip_directory.hpp"
#include "runtime/torch/parse_archive.hpp"

namespace weightmap {
namespace {

struct Row {
  format::Kind kind;
  format::Format format;
};

constexpr std::array table = {
    Row{format::Kind::zip, {"torch_zip", torch::parse_archive, torch::verify_archive_headers}},
};

}  // namespace

Result<const format::Format*> format_of(format::Input& input) {
  const std::uint64_t size = input.file->size();
  const std::uint64_t length = std::min<std::uint64_t>(size, bytes::first_read);
  // The window that a zip archive's directory is looked for in, so it is read once.
  TRY_ASSIGN(const std::span<const std::byte> tail,
             input.windows->extend_back(size - length, length));
  const format::Kind kind = format::identify({}, tail, size);
  for (const Row& row : table)
    if (row.kind == kind) return &row.format;
  TRY_ASSIGN(Error foreign, format::describe_foreign_file(*input.file));
  return tl::unexpected<Error>(std::move(foreign));
}

}  // namespace weightmap
