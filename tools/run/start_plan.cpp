#include "tools/run/start_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/try.hpp"
#include "tools/support/json_reader.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::string_view plan_kind = "weightmap start plan";
constexpr std::uint64_t plan_version = 1;
const JsonReader reader("the plan of a start");

Result<std::vector<ByteRange>> parse_parts(const Json& json, std::uint64_t size,
                                           const std::string& field) {
  std::vector<ByteRange> parts;
  TRY(reader.expect_list(json, field));
  std::uint64_t covered = 0;
  for (const Json& part : json) {
    if (!part.is_array() || part.size() != 2)
      return reader.corrupt(field + " has " + JsonReader::shown(part));
    TRY_ASSIGN(const std::uint64_t offset, reader.number(part[0], field));
    TRY_ASSIGN(const std::uint64_t length, reader.number(part[1], field));
    if (length == 0 || offset < covered || !bytes::contains(size, offset, length))
      return reader.corrupt(field + " has " + JsonReader::shown(part) +
                            ", which is not behind the one before and in " + std::to_string(size) +
                            " bytes");
    covered = offset + length;
    parts.push_back({offset, length});
  }
  return parts;
}

Result<PlannedFile> parse_file(const Json& json, std::size_t index) {
  const std::string where = "files[" + std::to_string(index) + "]";
  TRY(reader.expect_object(json, where));
  const Json& path = JsonReader::member(json, "path");
  if (!path.is_string() || !is_plannable(path.get_ref<const std::string&>()))
    return reader.corrupt(where + ".path is " + JsonReader::shown(path) +
                          ", no absolute path of a file on a disk");
  PlannedFile file;
  file.path = path.get<std::string>();
  TRY_ASSIGN(file.mtime_ns,
             reader.signed_number(JsonReader::member(json, "mtime_ns"), where + ".mtime_ns"));
  TRY_ASSIGN(file.size, reader.number(JsonReader::member(json, "size"), where + ".size"));
  if (json.contains("parts")) {
    TRY_ASSIGN(file.parts,
               parse_parts(JsonReader::member(json, "parts"), file.size, where + ".parts"));
  }
  return file;
}

}  // namespace

std::uint64_t PlannedFile::planned_bytes() const noexcept {
  if (parts.empty()) return size;
  return std::accumulate(
      parts.begin(), parts.end(), std::uint64_t{0},
      [](std::uint64_t sum, const ByteRange& part) { return sum + part.length; });
}

std::uint64_t StartPlan::planned_bytes() const noexcept {
  return std::accumulate(
      files.begin(), files.end(), std::uint64_t{0},
      [](std::uint64_t sum, const PlannedFile& file) { return sum + file.planned_bytes(); });
}

Json describe(const StartPlan& plan) {
  Json files = Json::array();
  for (const PlannedFile& file : plan.files) {
    Json entry = {{"path", file.path}, {"size", file.size}, {"mtime_ns", file.mtime_ns}};
    for (const ByteRange& part : file.parts)
      entry["parts"].push_back(Json::array({part.offset, part.length}));
    files.push_back(std::move(entry));
  }
  return {{"kind", plan_kind},
          {"version", plan_version},
          {"key", plan.key},
          {"files", std::move(files)}};
}

Result<StartPlan> parse_plan(std::string_view text) {
  TRY_ASSIGN(const Json json, reader.open(text, plan_kind, plan_version));
  StartPlan plan;
  TRY_ASSIGN(plan.key, reader.text(JsonReader::member(json, "key"), "key"));
  const Json& files = JsonReader::member(json, "files");
  TRY(reader.expect_list(files, "files"));
  plan.files.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    TRY_ASSIGN(PlannedFile file, parse_file(files[i], i));
    plan.files.push_back(std::move(file));
  }
  return plan;
}

bool has_own_content(std::string_view path) {
  if (!path.starts_with('/') || path.ends_with('/') || path.find('\0') != std::string_view::npos ||
      std::filesystem::path(path).lexically_normal().native() != path)
    return false;
  return !path.starts_with("/proc/") && !path.starts_with("/sys/") &&
         !path.starts_with("/dev/shm/");
}

bool is_plannable(std::string_view path) {
  return has_own_content(path) && !path.starts_with("/dev/") && !path.starts_with("/run/");
}

}  // namespace weightmap::cli::start
