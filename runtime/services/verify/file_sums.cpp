#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_list_bytes = std::uint64_t{64} << 20;
constexpr std::size_t sum_chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t digits = 64;

struct Line {
  std::string sha256;
  std::string name;
};

// "digits  name", with "*name" for what was read as binary.
std::optional<Line> plain_line(std::string_view line) {
  if (line.size() < digits + 3 || line[digits] != ' ') return std::nullopt;
  const char mode = line[digits + 1];
  if (mode != ' ' && mode != '*') return std::nullopt;
  return Line{normal_sha256(line.substr(0, digits)), std::string(line.substr(digits + 2))};
}

// "SHA256 (name) = digits"
std::optional<Line> tagged_line(std::string_view line) {
  constexpr std::string_view before = "SHA256 (";
  constexpr std::string_view between = ") = ";
  if (!line.starts_with(before) || line.size() <= before.size() + between.size() + digits)
    return std::nullopt;
  line.remove_prefix(before.size());
  const std::size_t name = line.size() - digits - between.size();
  if (line.substr(name, between.size()) != between) return std::nullopt;
  return Line{normal_sha256(line.substr(line.size() - digits)), std::string(line.substr(0, name))};
}

// A name that has a backslash or a newline is written with both escaped, behind a backslash.
std::string unescaped(std::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    if (is_escape) ++i;
    name += !is_escape ? text[i] : text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
  }
  return name;
}

std::optional<Line> parse_line(std::string_view text) {
  const bool is_escaped = text.starts_with('\\');
  if (is_escaped) text.remove_prefix(1);
  std::optional<Line> line = plain_line(text);
  if (!line) line = tagged_line(text);
  if (!line || line->sha256.empty()) return std::nullopt;
  if (is_escaped) line->name = unescaped(line->name);
  return line;
}

fs::path full_path(const fs::path& path) {
  std::error_code failed;
  const fs::path made = fs::absolute(path, failed);
  return (failed ? path : made).lexically_normal();
}

Result<std::string> read_text(const fs::path& path) {
  TRY_ASSIGN(const os::File file, os::File::open(path, false));
  if (file.size() > most_list_bytes)
    return failure(ErrorCode::limit_exceeded, "has " + std::to_string(file.size()) +
                                                  " bytes, more than any list of checksums");
  std::string text(file.size(), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::vector<FileSum>> parse_list(std::string_view text, const fs::path& list) {
  std::vector<FileSum> sums;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::optional<Line> parsed = parse_line(line);
    if (!parsed)
      return failure(ErrorCode::corrupt,
                     "line " + std::to_string(number) +
                         " is none of sha256sum's, which are 64 hexadecimal digits, two spaces and "
                         "a file's name");
    const std::string source =
        bytes::escape(list.filename().native()) + ", line " + std::to_string(number);
    const fs::path beside = full_path(list.parent_path() / parsed->name);
    sums.push_back({beside, parsed->sha256, source, parsed->name});
    if (const fs::path here = full_path(parsed->name); here != beside)
      sums.push_back({here, parsed->sha256, source, parsed->name});
  }
  return sums;
}

// Adds the bytes of a file to `sum` and to report.bytes; false if `progress` stops it.
Result<bool> add_file(const fs::path& path, bytes::Sha256& sum, SumReport& report,
                      std::uint64_t all, const Progress& progress) {
  TRY_ASSIGN(const os::File file, os::File::open(path, false));
  const auto chunk = std::make_unique_for_overwrite<std::byte[]>(sum_chunk_bytes);
  for (std::uint64_t done = 0; done < file.size();) {
    const std::span<std::byte> part(chunk.get(), static_cast<std::size_t>(std::min<std::uint64_t>(
                                                     sum_chunk_bytes, file.size() - done)));
    TRY(file.read(done, part));
    sum.add(part);
    done += part.size();
    report.bytes += part.size();
    if (progress && !progress(report.bytes, all)) return false;
  }
  TRY(file.check_unchanged());
  return true;
}

void compare(const fs::path& file, const std::string& found, std::span<const FileSum> sums,
             SumReport& report) {
  for (const FileSum& expected : sums)
    if (expected.file == file && expected.sha256 != found)
      report.faults.push_back(
          about_file({ErrorCode::corrupt,
                      "has the SHA-256 " + found + ", and should have " + expected.sha256 + " (" +
                          expected.source + "); fetch or copy it again",
                      Error::no_offset,
                      {}},
                     file)
              .value());
}

}  // namespace

std::string normal_sha256(std::string_view hex) {
  const std::optional<bytes::Sha256::Digest> digest = bytes::parse_sha256(hex);
  return digest ? bytes::to_hex(*digest) : std::string();
}

Result<std::vector<FileSum>> read_sums(const fs::path& list) {
  TRY_ASSIGN(std::string text, about_file(read_text(list), list));
  return about_file(parse_list(text, list), list);
}

std::vector<FileSum> hub_sums(std::span<const fs::path> files) {
  std::vector<FileSum> sums;
  for (const fs::path& file : files) {
    std::error_code failed;
    const fs::path blob = fs::canonical(file, failed);
    if (failed || blob.parent_path().filename() != "blobs") continue;
    if (std::string sum = normal_sha256(blob.filename().native()); !sum.empty())
      sums.push_back(
          {full_path(file), std::move(sum), "the name of its blob in the hub's cache", {}});
  }
  return sums;
}

SumReport compare_sums(std::span<const fs::path> files, std::span<const FileSum> sums,
                       const Progress& progress) {
  SumReport report;
  std::uint64_t all = 0;
  for (const fs::path& file : files) {
    const fs::path full = full_path(file);
    if (std::ranges::find(sums, full, &FileSum::file) == sums.end()) continue;
    report.compared.push_back(full);
    std::error_code failed;
    const std::uintmax_t size = fs::file_size(full, failed);
    if (!failed) all += size;
  }
  for (const fs::path& file : report.compared) {
    bytes::Sha256 sum;
    Result<bool> added = add_file(file, sum, report, all, progress);
    if (!added) {
      report.faults.push_back(about_file(std::move(added.error()), file).value());
      continue;
    }
    report.cancelled = !*added;
    if (report.cancelled) return report;
    compare(file, bytes::to_hex(sum.digest()), sums, report);
  }
  return report;
}

}  // namespace weightmap
