#include "tools/ls/model_files.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

struct FileSum {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
};

// Of the weights, and of what lies beside them.
std::array<FileSum, 2> sums_of(const std::vector<ModelFile>& files) {
  std::array<FileSum, 2> sums;
  for (const ModelFile& file : files) {
    FileSum& sum = sums[file.is_weights ? 0 : 1];
    ++sum.files;
    sum.bytes += file.version.size;
  }
  return sums;
}

std::string sha256_text(const ModelFile& file) {
  if (!file.sum.sha256) return {};
  std::string text;
  for (const std::byte byte : *file.sum.sha256)
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : printable(text); }

Json json_of(const FileSum& sum) { return {{"files", sum.files}, {"bytes", sum.bytes}}; }

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

void print_model_files(Output& out, const std::vector<ModelFile>& files, const TableStyle& style) {
  if (!style.tsv) {
    const auto [weights, beside] = sums_of(files);
    out.write(count(files.size(), "file") + ", " + style.bytes(weights.bytes + beside.bytes) +
              ": weights " + style.bytes(weights.bytes) + " in " + count(weights.files, "file") +
              ", beside them " + style.bytes(beside.bytes) + " in " + count(beside.files, "file") +
              "\n");
  }
  const std::vector<Column> columns = {
      {"SIZE", Column::right}, {"KIND"}, {"VERSION"}, {"SHA256"}, {"FILE"}};
  print_columns(out, style, columns, files.size(), [&](std::size_t i) {
    const ModelFile& file = files[i];
    return std::vector<std::string>{
        style.bytes(file.version.size), file.is_weights ? "weights" : "beside",
        or_dash(file.version.tag), or_dash(sha256_text(file)), printable(file.name)};
  });
}

void print_model_files_json(Output& out, const std::vector<ModelFile>& files,
                            const std::string& model) {
  Json list = Json::array();
  for (const ModelFile& file : files)
    list.push_back({{"file", file.name},
                    {"bytes", file.version.size},
                    {"is_weights", file.is_weights},
                    {"tag", or_null(file.version.tag)},
                    {"version_id", or_null(file.version.id)},
                    {"sha256", or_null(sha256_text(file))}});
  const auto [weights, beside] = sums_of(files);
  out.write(to_text({{"file", model},
                     {"weights", json_of(weights)},
                     {"beside", json_of(beside)},
                     {"files", list}}) +
            "\n");
}

}  // namespace weightmap::cli
