#include "tools/ls/description.hpp"

#include <algorithm>
#include <chrono>

#include "tools/command.hpp"
#include "tools/ls/tables.hpp"
#include "tools/support/text.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli {
namespace {

std::int64_t microseconds(const OpenStats& stats) {
  return std::chrono::duration_cast<std::chrono::microseconds>(stats.total).count();
}

// Returns "data/1, data/5 and 3 more".
std::string unwritten_text(const ReservedStorages& reserved) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, reserved.unwritten.size()); ++i)
    text +=
        (i == 0 ? "" : ", ") + NamedStorage{.key = std::to_string(reserved.unwritten[i])}.record();
  if (reserved.unwritten.size() > most)
    text += " and " + std::to_string(reserved.unwritten.size() - most) + " more";
  return text;
}

std::string reserved_text(const ReservedStorages& reserved) {
  std::string text = count(reserved.storages, "storage");
  if (reserved.is_sealed) return text + ", all written, sealed";
  text += ", " + std::to_string(reserved.unwritten.size()) + " unwritten";
  if (!reserved.unwritten.empty()) text += " (" + unwritten_text(reserved) + ")";
  return text + ", not sealed";
}

Json describe_reserved(const std::optional<ReservedStorages>& reserved) {
  if (!reserved) return nullptr;
  return {{"storages", reserved->storages},
          {"unwritten", reserved->unwritten},
          {"sealed", reserved->is_sealed}};
}

class Block {
 public:
  explicit Block(Output& out) : out_(out) {}
  void line(const std::string& label, const std::string& text) {
    out_.write(label + std::string(12 - label.size(), ' ') + text + "\n");
  }

 private:
  Output& out_;
};

std::string offsets_text(const OpenStats& stats) {
  return std::string(to_string(stats.strategy)) + " (" +
         count(stats.local_headers_read, "local header") + " read, " +
         count(stats.cache_hits, "cache hit") + ")";
}

std::string mapping_text(const CheckpointInfo& info) {
  std::string text = std::string(to_string(info.sharing));
  if (info.sharing_fell_back) text += " (the file system refuses shared mappings)";
  text += info.writable ? ", writable" : ", read-only";
  if (info.protection != Protection::map) text += ", " + std::string(to_string(info.protection));
  return text;
}

// Returns false for a folder, and for the name of a model.
bool is_path(const std::string& file, const std::filesystem::path& path) {
  return std::filesystem::path(file).filename() == path.filename();
}

// Returns "4 in /models/llama, of which model.safetensors.index.json names the others".
std::string files_text(const std::vector<SourceInfo>& files, const CheckpointInfo& info) {
  const std::string first = files.front().path.filename().native();
  std::string text =
      std::to_string(files.size()) + " in " + printable(files.front().path.parent_path().native());
  if (files.size() == 1) return text + ": " + printable(first);
  if (first.ends_with(".json")) text += ", of which " + printable(first) + " names the others";
  if (info.tensors_not_indexed != 0)
    text += "; " + count(info.tensors_not_indexed, "tensor") + " that it does not name left out";
  return text;
}

std::string format_text(const CheckpointInfo& info) {
  std::string text(to_string(info.format));
  if (info.version == 0) return text;  // it has none
  text += ", version " + std::to_string(info.version) + ", format version ";
  return text + (info.format_version ? printable(*info.format_version) : "not stated");
}

}  // namespace

Json describe_file(const std::string& file, const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const OpenStats& stats = checkpoint.stats();
  Json files = Json::array();
  for (const SourceInfo& source : files_of(checkpoint))
    files.push_back({{"path", source.path.native()}, {"bytes", source.bytes}});
  return {{"file", file},
          {"files", files},
          {"format", to_string(info.format)},
          {"version", info.version},
          {"format_version", info.format_version ? Json(*info.format_version) : Json(nullptr)},
          {"byteorder", info.byteorder},
          {"storage_alignment", info.storage_alignment},
          {"tensors", info.tensors},
          {"storages", info.storages},
          {"tensor_bytes", info.tensor_bytes},
          {"file_bytes", info.file_bytes},
          {"unread_bytes", info.unread_bytes},
          {"unsupported", info.unsupported},
          {"not_opened", info.not_opened},
          {"tensors_not_indexed", info.tensors_not_indexed},
          {"reserved", describe_reserved(info.reserved)},
          {"copied", {{"storages", stats.storages_copied}, {"bytes", stats.bytes_copied}}},
          {"offsets",
           {{"strategy", to_string(stats.strategy)},
            {"local_headers_read", stats.local_headers_read},
            {"cache_hits", stats.cache_hits}}},
          {"mapping",
           {{"sharing", to_string(info.sharing)},
            {"writable", info.writable},
            {"protection", to_string(info.protection)}}},
          {"lives_in_memory", lives_in_memory(checkpoint)},
          {"open",
           {{"reads", stats.reads},
            {"bytes_read", stats.bytes_read},
            {"microseconds", microseconds(stats)}}}};
}

void print_description(Output& out, const std::string& file, const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const OpenStats& stats = checkpoint.stats();
  Block block(out);
  block.line("file", printable(file) + ", " + human_bytes(info.file_bytes) +
                         (lives_in_memory(checkpoint) ? ", kept in memory" : ""));
  const std::vector<SourceInfo> files = files_of(checkpoint);
  if (files.size() > 1 || (!files.front().path.empty() && !is_path(file, files.front().path)))
    block.line("files", files_text(files, info));
  block.line("format", format_text(info));
  block.line("byte order", std::string(info.byteorder) +
                               (info.byteorder_assumed ? " (assumed: the file does not say)" : ""));
  block.line("alignment", count(info.storage_alignment, "byte"));
  block.line("tensors", std::to_string(info.tensors) + ", " + human_bytes(info.tensor_bytes));
  block.line("storages", std::to_string(info.storages));
  if (const auto composed = composed_tensors(checkpoint); !composed.empty())
    block.line("composed", composed_summary(composed));
  if (!info.unsupported.empty()) block.line("not listed", unlisted_text(info));
  for (const std::string& name : info.not_opened) block.line("not opened", printable(name));
  if (info.reserved) block.line("reserved", reserved_text(*info.reserved));
  if (info.unread_bytes != 0)
    block.line("unread", human_bytes(info.unread_bytes) +
                             (is_header_and_elements(info.format)
                                  ? " behind the last tensor"
                                  : " behind the stream: only the first one of a file is read"));
  if (stats.storages_copied != 0)
    block.line("copied",
               count(stats.storages_copied,
                     info.format == Format::pickle ? "array in text" : "compressed storage") +
                   ", " + human_bytes(stats.bytes_copied) + " in memory: not zero-copy");
  block.line("offsets", offsets_text(stats));
  block.line("mapping", mapping_text(info));
  block.line("open", count(stats.reads, "read") + " of " + human_bytes(stats.bytes_read) + " in " +
                         std::to_string(microseconds(stats)) + " us");
}

}  // namespace weightmap::cli
