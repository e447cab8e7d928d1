#include "runtime/checkpoint/formats.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/pickle/pickle_end.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/gguf/parse_gguf.hpp"
#include "runtime/formats/npz/parse_npz.hpp"
#include "runtime/formats/safetensors/parse_safetensors.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/formats/torch/parse.hpp"

namespace weightmap {
namespace {

using format::Kind;

constexpr std::array table = {
    FormatRow{.kind = Kind::zip,
              .is_archive = npz::is_archive,
              .parse = npz::parse,
              .verify_headers = npz::verify_headers},
    FormatRow{.kind = Kind::zip,
              .parse = torch::parse_archive,
              .verify_headers = torch::verify_archive_headers},
    FormatRow{
        .kind = Kind::legacy, .parse = torch::parse_legacy, .verify_headers = torch::verify_legacy},
    FormatRow{.kind = Kind::pickle, .parse = torch::parse_pickle},
    FormatRow{.kind = Kind::safetensors, .parse = safetensors::parse, .name_files = name_ranks},
    FormatRow{.kind = Kind::gguf, .parse = gguf::parse, .name_files = name_split},
    FormatRow{.kind = Kind::npy, .parse = npz::parse_npy},
    FormatRow{.kind = Kind::json, .name_files = name_shards, .sentence = "is an index of shards"},
    FormatRow{.kind = Kind::distributed,
              .name_files = name_data_files,
              .sentence = "is metadata of torch.distributed.checkpoint"},
};

const FormatRow* row_of(Kind kind) noexcept {
  const auto row = std::ranges::find(table, kind, &FormatRow::kind);
  return row == table.end() ? nullptr : row;
}

Result<const FormatRow*> format_by_head(format::Input& input) {
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min(input.file->size(), input.first_bytes)));
  return row_of(format::identify_head(head));
}

// The row of an archive, whose directory tells it. A damaged one is left to torch's parser, which
// says what is wrong with it.
const FormatRow* row_of_archive(format::Input& input, const Limits& limits, OpenStats& stats) {
  const auto began = std::chrono::steady_clock::now();
  Result<zip::Directory> directory = format::read_directory(*input.file, *input.cache, limits);
  stats.directory += std::chrono::steady_clock::now() - began;
  if (directory) input.directory = std::move(*directory);
  return std::ranges::find_if(table, [&](const FormatRow& row) {
    return row.kind == Kind::zip &&
           (row.is_archive == nullptr || (input.directory && row.is_archive(*input.directory)));
  });
}

// `tail` is what identify() is told of the end of a file.
Result<Kind> kind_of(format::Input& input, std::span<const std::byte> tail) {
  const std::uint64_t size = input.file->size();
  const Kind by_tail = format::identify({}, tail, size);
  if (by_tail != Kind::needs_head) return by_tail;
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min<std::uint64_t>(size, format::head_bytes)));
  return format::identify(head, tail, size);
}

// True if a file begins with values among which joblib has an array, which lies raw behind its
// name.
bool has_joblib_array(format::Input& input) {
  constexpr std::uint64_t most = 64 << 10;
  constexpr std::string_view name = "joblib.numpy_pickle\nNumpyArrayWrapper\n";
  const auto head = input.cache->bytes(0, std::min(most, input.file->size()));
  return head &&
         std::string_view(reinterpret_cast<const char*>(head->data()), head->size()).find(name) !=
             std::string_view::npos;
}

// A pickle of protocol 0 or 1 has no mark, so all of the file has to be one.
bool is_old_pickle(format::Input& input, std::span<const std::byte> tail, const Limits& limits) {
  if (tail.empty() || tail.back() != std::byte{'.'}) return false;
  const Result<std::uint64_t> end = pickle::find_end(*input.cache, 0, limits.pickle_bytes);
  return (end && *end == input.file->size()) || has_joblib_array(input);
}

// What numbers alone are, which a file beside them tells of.
std::string_view name_numbers(const std::filesystem::path& name) {
  std::error_code failed;
  if (name.extension() == ".bin" &&
      std::filesystem::exists(std::filesystem::path(name).replace_extension(".xml"), failed))
    return "has the weights of the network of OpenVINO in the .xml beside it; read that with "
           "openvino, or take the model that it was made of";
  const std::string file = name.filename();
  if (const auto part = sets::shard_name(file, ""); part && part->stem.ends_with(".data"))
    return "has variables of TensorFlow, whose names are in the .index beside it; load them with "
           "tf.train.load_checkpoint, and save them as safetensors";
  return {};
}

}  // namespace

bool may_begin_with_metadata(const std::filesystem::path& name) {
  const std::string_view text = name.native();
  return text.ends_with(".safetensors") || text.ends_with(".json") || text.ends_with(".gguf") ||
         text.ends_with(".npy");
}

Result<const FormatRow*> format_of(format::Input& input, const std::filesystem::path& name,
                                   const Limits& limits, OpenStats& stats) {
  if (sets::is_distributed_metadata(name.filename().native())) return row_of(Kind::distributed);
  if (name.native().ends_with(".distcp"))
    return failure(ErrorCode::invalid_argument,
                   "is one file of a folder of torch.distributed.checkpoint; open the folder");
  if (may_begin_with_metadata(name)) {
    TRY_ASSIGN(const FormatRow* const row, format_by_head(input));
    if (row != nullptr) return row;
  }
  const std::uint64_t size = input.file->size();
  const std::uint64_t length = std::min<std::uint64_t>(size, bytes::first_read);
  // The window that a zip archive's directory is looked for in, so it is read once.
  TRY_ASSIGN(const std::span<const std::byte> tail,
             input.cache->extend_back(size - length, length));
  TRY_ASSIGN(const Kind kind, kind_of(input, tail));
  if (kind == Kind::zip) return row_of_archive(input, limits, stats);
  if (const FormatRow* const row = row_of(kind); row != nullptr) return row;
  if (is_old_pickle(input, tail, limits)) return row_of(Kind::pickle);
  if (name.native().ends_with(".safetensors")) {
    // Which says what is wrong with it as one.
    TRY_ASSIGN(const std::span<const std::byte> head,
               input.cache->bytes(0, std::min<std::uint64_t>(size, format::head_bytes)));
    if (!format::describe_stranger(head, size)) return row_of(Kind::safetensors);
  }
  if (const std::string_view numbers = name_numbers(name); !numbers.empty())
    return failure(ErrorCode::not_a_checkpoint, std::string(numbers));
  TRY_ASSIGN(Error foreign, format::describe_foreign_file(*input.file));
  return tl::unexpected<Error>(std::move(foreign));
}

// An archive with something in front of it fails if that is safetensors or GGUF: then it is bytes
// of a tensor. So no file that is an archive alone is looked at at both ends.
Result<format::Parsed> parse_file(const FormatRow*& row, format::Input& input,
                                  const OpenOptions& options, OpenStats& stats,
                                  std::pmr::memory_resource& memory) {
  Result<format::Parsed> parsed = row->parse(input, options, stats, memory);
  if (parsed || row->kind != Kind::zip) return parsed;
  // The failed parse may have freed the bytes that the first cache lent.
  input.cache.emplace(*input.file, memory);
  const auto head =
      input.cache->bytes(0, std::min<std::uint64_t>(input.file->size(), format::head_bytes));
  if (!head) return parsed;
  const Kind kind = format::identify_head(*head);
  if (kind != Kind::safetensors && kind != Kind::gguf) return parsed;
  row = row_of(kind);
  return row->parse(input, options, stats, memory);
}

}  // namespace weightmap
