#include "runtime/services/delta/model_version.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/json/document.hpp"
#include "runtime/base/json/json_text.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::delta {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_version = 200;
constexpr std::size_t usual_digits = 6;

std::optional<std::uint64_t> number_of(std::string_view version) noexcept {
  return version.find_first_not_of("0123456789") == version.npos ? bytes::number(version)
                                                                 : std::nullopt;
}

Result<std::string> read_version(const fs::path& path) {
  TRY_ASSIGN(const os::File file, os::File::open(path, false));
  constexpr std::uint64_t most = 65536;
  const auto refuse = [] {
    return failure(ErrorCode::corrupt,
                   "does not say which version the model has, as {\"version\": \"000002\"} does");
  };
  if (file.size() > most) return refuse();
  std::string text(file.size(), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  TRY_ASSIGN(const std::unique_ptr<json::Document> document, json::Document::parse(text));
  const std::optional<Value> version = document->root().find("version");
  if (!version || !version->string() || version->string()->empty()) return refuse();
  return std::string(*version->string());
}

}  // namespace

bool is_same_version(std::string_view a, std::string_view b) noexcept {
  const std::optional<std::uint64_t> number = number_of(a);
  return a == b || (number && number == number_of(b));
}

Result<void> check_ascends(std::string_view from, std::string_view to) {
  for (const std::string_view version : {from, to})
    if (version.empty() || version.size() > longest_version)
      return failure(ErrorCode::corrupt, bytes::quote(version) + " is no version");
  const std::optional<std::uint64_t> base = number_of(from);
  const std::optional<std::uint64_t> next = number_of(to);
  const bool ascends = base && next ? *base < *next : from != to;
  if (ascends) return {};
  return failure(ErrorCode::corrupt, "leads from version " + bytes::quote(from) + " to " +
                                         bytes::quote(to) + ", which is not a later one");
}

std::optional<std::string> version_after(std::string_view version) {
  const std::optional<std::uint64_t> number = number_of(version);
  if (!number || *number == UINT64_MAX) return std::nullopt;
  std::string text = std::to_string(*number + 1);
  if (text.size() < usual_digits) text.insert(0, usual_digits - text.size(), '0');
  return text;
}

std::optional<std::string> version_in_name(const fs::path& folder) {
  constexpr std::string_view beginning = "weight_v";
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  const std::string name = named.filename().native();
  if (!name.starts_with(beginning)) return std::nullopt;
  std::string version = name.substr(beginning.size());
  return number_of(version) ? std::optional(std::move(version)) : std::nullopt;
}

Result<void> record_version(const fs::path& folder, std::string_view version,
                            std::string_view base_version, bool durable) {
  std::string text = "{\"version\": ";
  json::append_string(text, version);
  text += ", \"base_version\": ";
  json::append_string(text, base_version);
  text += "}\n";
  TRY_ASSIGN(NewFile file, NewFile::create(folder / version_name, {.durable = durable}));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::string> recorded_version(const fs::path& folder) {
  const fs::path path = folder / version_name;
  return about_file(read_version(path), path);
}

Result<std::string> version_of(const fs::path& folder, const fs::path& name,
                               const Checkpoint& checkpoint) {
  std::error_code unknown;
  if (fs::exists(folder / version_name, unknown)) return recorded_version(folder);
  const std::optional<Value> stated = checkpoint.root().find("version");
  if (stated && stated->string() && number_of(*stated->string()))
    return std::string(*stated->string());
  const fs::path real = fs::weakly_canonical(name, unknown);
  return version_in_name(unknown ? name : real).value_or(std::string(first_version));
}

}  // namespace weightmap::delta
