#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/dcp/metadata.hpp"
#include "runtime/dcp/walk_items.hpp"
#include "runtime/format/identify.hpp"
#include "runtime/format/zip_directory.hpp"
#include "runtime/inspect/content_scan.hpp"
#include "runtime/inspect/whole.hpp"
#include "runtime/os/file/file.hpp"
#include "runtime/sets/select_files.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/globals.hpp"

namespace weightmap {
namespace {

// What is opened, and may have pickles as well.
bool is_opened(Format format) noexcept {
  return format == Format::torch_zip || format == Format::torch_legacy || format == Format::npz;
}

// What may hold pickles although it is no zip archive.
Result<void> scan_other(ContentScan& scan, const Content& file, Look look) {
  if (look == Look::tar) return scan.scan_tar(file);
  if (look == Look::gzip) return scan.scan_gzip(file);
  return {};
}

// Each item of a .distcp file, which torch unpickles by itself.
Result<FileGlobals> list_globals_of_items(const os::File& file, const OpenOptions& options) {
  FileGlobals made;
  ContentScan scan(options, made);
  TRY(dcp::for_each_item(file, [&](ByteRange item) -> Result<void> {
    const std::string name = "item at byte " + std::to_string(item.offset);
    const Part part(file, item.offset, item.length);
    Result<void> ran = scan.scan_zip({part, item.offset, name, 1});
    if (ran) return {};
    PickleGlobals& failed = made.pickles.emplace_back();
    failed.record = name;
    failed.fault = std::move(ran.error());
    failed.fault->file_offset = item.offset;
    return {};
  }));
  made.format = Format::dcp;
  return made;
}

// The metadata of a folder is whole if all that it names is there.
void check_folder(const std::filesystem::path& path, const OpenOptions& options,
                  FileGlobals& made) {
  const Result<Checkpoint> opened = Checkpoint::open(path, options);
  if (opened || made.fault) return;
  Error fault = opened.error();
  const bool is_missing = fault.code == ErrorCode::not_found ||
                          fault.code == ErrorCode::not_a_checkpoint || fault.os_error == ENOENT;
  if (is_missing) fault.code = ErrorCode::corrupt;
  if (fault.code == ErrorCode::corrupt || fault.code == ErrorCode::io)
    made.fault = std::move(fault);
}

Result<FileGlobals> list_globals_of(const std::filesystem::path& path, const OpenOptions& given) {
  TRY_ASSIGN(const os::File file, os::File::open(path, false));
  if (path.extension() == ".distcp") return list_globals_of_items(file, given);
  const bool is_metadata = sets::is_distributed_metadata(path.filename().native());
  const OpenOptions& options = is_metadata ? dcp::with_own_globals(given) : given;
  std::array<std::byte, format::head_bytes> bytes{};
  const std::span head(bytes.data(), std::min<std::uint64_t>(bytes.size(), file.size()));
  TRY(file.read(0, head));
  const format::Kind kind = format::identify_head(head);
  const Look look = look_of(head);

  FileGlobals made;
  ContentScan scan(options, made);
  const Content content{file};
  const Result<void> archive = scan.scan_zip(content);
  // Safetensors has no pickles; its beginning only looks like one.
  if (!archive && (kind == format::Kind::safetensors || kind == format::Kind::npy)) {
    made.format = kind == format::Kind::npy ? Format::npy : Format::safetensors;
    if (look == Look::objects) scan.look_into(content);
    made.fault = find_damage(file, path, options);
    return made;
  }
  const Result<void> other = scan_other(scan, content, look);
  // torch detects an archive by its first bytes, and unpickles any other file.
  bool found = false;
  if (look != Look::zip) {
    TRY_ASSIGN(found, scan.scan_pickles(content, look == Look::pickle));
    if (found && !archive) made.format = scan.is_legacy() ? Format::torch_legacy : Format::pickle;
  }
  if (!other && !archive) made.fault = other.error();
  if (is_opened(made.format) && !made.fault) made.fault = find_damage(file, path, options);
  if (found && is_metadata) check_folder(path, given, made);
  if (found || archive || made.fault || !made.pickles.empty() || !made.code.empty()) return made;
  // GGUF's first four bytes are an opcode, too, so the rest was scanned.
  if (kind == format::Kind::gguf) {
    made.format = Format::gguf;
    made.fault = find_damage(file, path, options);
    return made;
  }
  if (look != Look::tar) return tl::unexpected<Error>(archive.error());
  TRY_ASSIGN(Error foreign, format::describe_foreign_file(file));
  return tl::unexpected<Error>(std::move(foreign));
}

}  // namespace

Result<FileGlobals> list_globals(const std::filesystem::path& path, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  Result<FileGlobals> listed = list_globals_of(path, complete);
  if (!listed) return about_file(std::move(listed.error()), path);
  return listed;
}

}  // namespace weightmap
