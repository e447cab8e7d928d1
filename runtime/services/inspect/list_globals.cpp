#include "runtime/services/inspect/list_globals.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/walk_items.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/format/members.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/services/inspect/content_scan.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

// The formats of header and elements, whose first bytes other readers may run as a pickle.
Format format_of_kind(format::Kind kind) noexcept {
  return kind == format::Kind::safetensors ? Format::safetensors
         : kind == format::Kind::gguf      ? Format::gguf
         : kind == format::Kind::npy       ? Format::npy
                                           : Format::unknown;
}

// What is opened, and may have pickles as well.
bool is_opened(Format format) noexcept {
  return format == Format::torch_zip || format == Format::torch_legacy || format == Format::npz ||
         is_header_and_elements(format);
}

// What may hold pickles although it is no zip archive.
Result<void> scan_other(ContentScan& scan, const Content& file, const Looks& looks) {
  if (looks.tar) TRY(scan.scan_tar(file));
  if (looks.deflated || looks.packed) TRY(scan.scan_deflated(file));
  return {};
}

// Each item of a .distcp file, which torch unpickles by itself.
Result<FileGlobals> list_globals_of_items(const Part& file, std::uint64_t base,
                                          const OpenOptions& options) {
  FileGlobals made;
  ContentScan scan(options, made);
  TRY(dcp::for_each_item(file, [&](ByteRange item) -> Result<void> {
    const std::string name = "item at byte " + std::to_string(item.offset);
    const Part part(file, item.offset, item.length);
    Result<void> ran = scan.scan_zip({part, base + item.offset, name, 1});
    if (ran) return {};
    PickleGlobals& failed = made.pickles.emplace_back();
    failed.record = name;
    failed.fault = std::move(ran.error());
    failed.fault->file_offset = base + item.offset;
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

// The file, or a member of it.
Result<FileGlobals> list_globals_of(const os::File& file, ByteRange range,
                                    const std::filesystem::path& path, const OpenOptions& given) {
  const Part bytes(file, range.offset, range.length);
  if (path.extension() == ".distcp") return list_globals_of_items(bytes, range.offset, given);
  const bool is_metadata = sets::is_distributed_metadata(path.filename().native());
  const OpenOptions& options = is_metadata ? dcp::with_own_globals(given) : given;
  std::array<std::byte, format::head_bytes> front{};
  const std::span head(front.data(), std::min<std::uint64_t>(front.size(), bytes.size()));
  TRY(bytes.read(0, head));
  const format::Kind kind = format::identify_head(head);
  const Looks looks = looks_of(head, bytes.size());

  FileGlobals made;
  ContentScan scan(options, made);
  const Content content{bytes, range.offset};
  const Result<void> archive = scan.scan_zip(content);
  if (!archive) made.format = format_of_kind(kind);
  const bool is_known = made.format != Format::unknown;
  const Result<void> other = scan_other(scan, content, looks);
  bool found = false;
  std::uint64_t end = 0;  // of what was looked at, if more may lie behind it
  if (!archive && looks.array) {
    scan.look_into(content);
  } else if (!looks.zip) {
    // torch detects an archive by its first bytes, and unpickles any other file.
    TRY_ASSIGN(found, scan.scan_pickles(content, !is_known && begins_as_pickle(head)));
    if (found && !archive && !is_known) {
      made.format = scan.is_legacy() ? Format::torch_legacy : Format::pickle;
      end = scan.is_legacy() ? 0 : scan.pickled();
    }
  }
  const auto in_file = [&](Error error) {
    if (error.file_offset != Error::no_offset) error.file_offset += range.offset;
    return error;
  };
  if (!other && !archive) made.fault = in_file(other.error());
  if (is_opened(made.format) && !made.fault) {
    Wholeness whole = look_for_damage(bytes, &file, range.offset, path, options);
    if (whole.damage) made.fault = in_file(std::move(*whole.damage));
    made.hole_bytes = whole.hole_bytes;
    if (!looks.array && whole.unread_bytes > 0) end = bytes.size() - whole.unread_bytes;
  }
  if (!archive) scan.look_behind(content, end);
  if (found && is_metadata) check_folder(path, given, made);
  if (found || archive || is_known || made.fault || !made.pickles.empty() || !made.code.empty())
    return made;
  if (!looks.tar) return tl::unexpected<Error>(in_file(archive.error()));
  TRY_ASSIGN(Error foreign, format::describe_foreign_file(bytes));
  return tl::unexpected<Error>(std::move(foreign));
}

Result<FileGlobals> list_globals_of(const std::filesystem::path& path, const OpenOptions& given) {
  Result<os::File> opened = os::File::open(path, false);
  std::optional<format::MemberPath> inside;
  if (!opened && opened.error().os_error == ENOTDIR) inside = format::member_path(path);
  if (inside) opened = os::File::open(inside->file, false);
  TRY_ASSIGN(const os::File file, std::move(opened));
  ByteRange range{0, file.size()};
  if (inside) {
    TRY_ASSIGN(range, format::find_member(file, inside->member, given.limits));
  }
  return list_globals_of(file, range, path, given);
}

}  // namespace

Result<FileGlobals> list_globals(const std::filesystem::path& path, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  return about_file(list_globals_of(path, complete), path);
}

}  // namespace weightmap
