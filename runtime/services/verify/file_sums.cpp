#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/verify/sum_list.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t sum_chunk_bytes = std::size_t{1} << 20;

fs::path full_path(const fs::path& path) {
  std::error_code failed;
  const fs::path made = fs::absolute(path, failed);
  return (failed ? path : made).lexically_normal();
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
  TRY_ASSIGN(const std::vector<ListedSum> listed,
             about_file(os::File::open(list, false).and_then(read_sum_list), list));
  std::vector<FileSum> sums;
  for (const ListedSum& each : listed) {
    const std::string source = bytes::escape(list.filename().native()) + ", " + each.place;
    const fs::path beside = full_path(list.parent_path() / each.name);
    sums.push_back({beside, bytes::to_hex(each.sha256), source, each.name});
    if (const fs::path here = full_path(each.name); here != beside)
      sums.push_back({here, bytes::to_hex(each.sha256), source, each.name});
  }
  return sums;
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
