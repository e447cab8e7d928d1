#include "runtime/checkpoint/formats.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/base/try.hpp"
#include "runtime/format/identify.hpp"
#include "runtime/format/zip_directory.hpp"
#include "runtime/gguf/parse_gguf.hpp"
#include "runtime/safetensors/parse_safetensors.hpp"
#include "runtime/sets/select_files.hpp"
#include "runtime/torch/parse_archive.hpp"
#include "runtime/torch/parse_legacy.hpp"

namespace weightmap {
namespace {

struct Row {
  format::Kind kind;
  format::Format format;
};

constexpr std::array table = {
    Row{format::Kind::zip, {"torch_zip", torch::parse_archive, torch::verify_archive_headers}},
    Row{format::Kind::legacy, {"torch_legacy", torch::parse_legacy, torch::verify_legacy}},
    Row{format::Kind::safetensors, {"safetensors", safetensors::parse, nullptr}},
    Row{format::Kind::gguf, {"gguf", gguf::parse, nullptr}},
    Row{format::Kind::json, {"index of shards", nullptr, nullptr}},
};

// Its metadata is a bare pickle, which only its name tells from others.
constexpr format::Format distributed = {"dcp", nullptr, nullptr};

const format::Format* row_of(format::Kind kind) noexcept {
  for (const Row& row : table)
    if (row.kind == kind) return &row.format;
  return nullptr;
}

bool may_begin_with_metadata(const std::filesystem::path& name) {
  const std::string_view text = name.native();
  return text.ends_with(".safetensors") || text.ends_with(".json") || text.ends_with(".gguf");
}

Result<const format::Format*> format_by_head(format::Input& input) {
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min(input.file->size(), bytes::first_read)));
  return row_of(format::identify_head(head));
}

// `tail` is what identify() is told of the end of a file.
Result<format::Kind> kind_of(format::Input& input, std::span<const std::byte> tail) {
  const std::uint64_t size = input.file->size();
  const format::Kind by_tail = format::identify({}, tail, size);
  if (by_tail != format::Kind::needs_head) return by_tail;
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min<std::uint64_t>(size, format::head_bytes)));
  return format::identify(head, tail, size);
}

}  // namespace

bool is_distributed(const format::Format& format) noexcept { return &format == &distributed; }

Result<const format::Format*> format_of(format::Input& input, const std::filesystem::path& name) {
  if (sets::is_distributed_metadata(name.filename().native())) return &distributed;
  if (name.native().ends_with(".distcp"))
    return failure(ErrorCode::invalid_argument,
                   "is one file of a folder of torch.distributed.checkpoint; open the folder");
  if (may_begin_with_metadata(name)) {
    TRY_ASSIGN(const format::Format* const format, format_by_head(input));
    if (format != nullptr) return format;
  }
  const std::uint64_t size = input.file->size();
  const std::uint64_t length = std::min<std::uint64_t>(size, bytes::first_read);
  // The window that a zip archive's directory is looked for in, so it is read once.
  TRY_ASSIGN(const std::span<const std::byte> tail,
             input.cache->extend_back(size - length, length));
  TRY_ASSIGN(const format::Kind kind, kind_of(input, tail));
  if (const format::Format* const format = row_of(kind); format != nullptr) return format;
  if (name.native().ends_with(".safetensors")) {
    // Which says what is wrong with it as one.
    TRY_ASSIGN(const std::span<const std::byte> head,
               input.cache->bytes(0, std::min<std::uint64_t>(size, format::head_bytes)));
    if (!format::describe_stranger(head, size)) return row_of(format::Kind::safetensors);
  }
  TRY_ASSIGN(Error foreign, format::describe_foreign_file(*input.file));
  return tl::unexpected<Error>(std::move(foreign));
}

// An archive with something in front of it fails if that is safetensors or GGUF: then it is bytes
// of a tensor. So no file that is an archive alone is looked at at both ends.
Result<format::Parsed> parse_file(const format::Format& format, format::Input& input,
                                  const OpenOptions& options, OpenStats& stats,
                                  std::pmr::memory_resource& memory) {
  Result<format::Parsed> parsed = format.parse({&input, 1}, options, stats, memory);
  if (parsed || &format != row_of(format::Kind::zip)) return parsed;
  // What the first ones lent may be gone with what failed.
  input.cache.emplace(*input.file, memory);
  const auto head =
      input.cache->bytes(0, std::min<std::uint64_t>(input.file->size(), format::head_bytes));
  if (!head) return parsed;
  const format::Kind kind = format::identify_head(*head);
  if (kind != format::Kind::safetensors && kind != format::Kind::gguf) return parsed;
  return row_of(kind)->parse({&input, 1}, options, stats, memory);
}

}  // namespace weightmap
