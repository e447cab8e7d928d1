#include "tools/run/start_plan.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <optional>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::string_view plan_kind = "weightmap start plan";
constexpr std::uint64_t plan_version = 1;
constexpr std::size_t longest_shown = 200;

tl::unexpected<Error> corrupt(const std::string& what) {
  return failure(ErrorCode::corrupt, "the plan of a start: " + what);
}

std::string shown(const Json& json) {
  std::string text = to_text(json);
  if (text.size() > longest_shown) text.replace(longest_shown, std::string::npos, "...");
  return printable(text);
}

Result<std::uint64_t> number(const Json& json, const std::string& field) {
  if (!json.is_number_unsigned()) return corrupt(field + " is " + shown(json) + ", no number");
  return json.get<std::uint64_t>();
}

const Json& member(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

Result<std::vector<ByteRange>> parse_parts(const Json& json, std::uint64_t size,
                                           const std::string& field) {
  std::vector<ByteRange> parts;
  if (!json.is_array()) return corrupt(field + " is " + shown(json) + ", no list");
  std::uint64_t covered = 0;
  for (const Json& part : json) {
    if (!part.is_array() || part.size() != 2) return corrupt(field + " has " + shown(part));
    TRY_ASSIGN(const std::uint64_t offset, number(part[0], field));
    TRY_ASSIGN(const std::uint64_t length, number(part[1], field));
    if (length == 0 || offset < covered || !bytes::contains(size, offset, length))
      return corrupt(field + " has " + shown(part) +
                     ", which is not behind the one before and in " + std::to_string(size) +
                     " bytes");
    covered = offset + length;
    parts.push_back({offset, length});
  }
  return parts;
}

Result<PlannedFile> parse_file(const Json& json, std::size_t index) {
  const std::string where = "files[" + std::to_string(index) + "]";
  if (!json.is_object()) return corrupt(where + " is " + shown(json) + ", no object");
  const Json& path = member(json, "path");
  if (!path.is_string() || !is_plannable(path.get_ref<const std::string&>()))
    return corrupt(where + ".path is " + shown(path) + ", no absolute path of a file on a disk");
  const Json& time = member(json, "mtime_ns");
  if (!time.is_number_integer())
    return corrupt(where + ".mtime_ns is " + shown(time) + ", no number");
  PlannedFile file;
  file.path = path.get<std::string>();
  file.mtime_ns = time.get<std::int64_t>();
  TRY_ASSIGN(file.size, number(member(json, "size"), where + ".size"));
  if (json.contains("parts")) {
    TRY_ASSIGN(file.parts, parse_parts(member(json, "parts"), file.size, where + ".parts"));
  }
  return file;
}

// A plan of no weights may leave them out.
Result<std::vector<std::string>> parse_weights(const Json& json) {
  std::vector<std::string> weights;
  if (json.is_null()) return weights;
  if (!json.is_array()) return corrupt("weights is " + shown(json) + ", no list");
  for (const Json& key : json) {
    if (!key.is_string()) return corrupt("weights has " + shown(key) + ", no text");
    weights.push_back(key.get<std::string>());
  }
  return weights;
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
          {"weights", plan.weights},
          {"files", std::move(files)}};
}

Result<StartPlan> parse_plan(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return corrupt("is no JSON");
  if (!json.is_object() || member(json, "kind") != plan_kind)
    return corrupt("\"kind\" is not \"" + std::string(plan_kind) + "\"");
  if (member(json, "version") != plan_version)
    return failure(ErrorCode::unsupported, "the plan of a start has version " +
                                               shown(member(json, "version")) + ", expected 1");
  const Json& key = member(json, "key");
  if (!key.is_string()) return corrupt("key is " + shown(key) + ", no text");
  const Json& files = member(json, "files");
  if (!files.is_array()) return corrupt("files is " + shown(files) + ", no list");
  StartPlan plan{key.get<std::string>(), {}};
  TRY_ASSIGN(plan.weights, parse_weights(member(json, "weights")));
  plan.files.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    TRY_ASSIGN(PlannedFile file, parse_file(files[i], i));
    plan.files.push_back(std::move(file));
  }
  return plan;
}

bool is_plannable(std::string_view path) {
  constexpr std::array<std::string_view, 4> elsewhere = {"/proc/", "/sys/", "/dev/", "/run/"};
  if (!path.starts_with('/') || path.ends_with('/') || path.find('\0') != std::string_view::npos)
    return false;
  if (std::filesystem::path(path).lexically_normal().native() != path) return false;
  return std::none_of(elsewhere.begin(), elsewhere.end(),
                      [path](std::string_view folder) { return path.starts_with(folder); });
}

}  // namespace weightmap::cli::start
