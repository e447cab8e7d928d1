#include "runtime/formats/format/members.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory_resource>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/formats/format/listed_names.hpp"
#include "runtime/formats/format/tar.hpp"
#include "runtime/formats/format/zip_directory.hpp"

namespace weightmap::format {
namespace {

constexpr std::string_view separator = "//";

tl::unexpected<Error> lack(const ListedNames& names, std::string_view name) {
  const std::size_t nested = name.find(separator);
  std::string sentence =
      nested != std::string_view::npos ? "members of members are not opened: extract " +
                                             bytes::quote(name.substr(0, nested)) + " first"
      : names.count() == 0 ? "the archive has no members"
      : name.empty()
          ? "the name of a member is missing behind the two slashes; the archive has " +
                names.text()
          : "the archive has no member " + bytes::quote(name) + "; it has " + names.text();
  Error error{ErrorCode::io, std::move(sentence), Error::no_offset, {}};
  error.os_error = ENOENT;
  return tl::unexpected<Error>(std::move(error));
}

Result<ByteRange> find_in_tar(const bytes::ByteSource& file, std::string_view name) {
  TarReader reader(file);
  ListedNames names;
  std::optional<TarMember> found;
  for (;;) {
    TRY_ASSIGN(std::optional<TarMember> member, reader.next());
    if (!member) break;
    if (!member->is_link) names.add(member->name);
    if (without_dot(member->name) == without_dot(name)) found = std::move(member);
  }
  if (!found) return lack(names, name);
  if (found->is_link)
    return failure(ErrorCode::unsupported,
                   "the tar archive has this member as a link to another one; name that",
                   found->offset);
  if (found->is_sparse)
    return failure(
        ErrorCode::unsupported,
        "the tar archive has this member without its zeros (sparse), so it is no part of "
        "the file; extract it (tar xf FILE MEMBER) and open that",
        found->offset);
  return ByteRange{found->offset, found->size};
}

Result<ByteRange> find_in_zip(const bytes::ByteSource& file, std::string_view name,
                              const Limits& limits) {
  bytes::ReadCache cache(file, *std::pmr::new_delete_resource());
  TRY_ASSIGN(const zip::Directory directory,
             read_directory(file, cache, limits, zip::Refusals::structure));
  const auto is_wanted = [&](const zip::Record& record) {
    return without_dot(record.full_name()) == without_dot(name);
  };
  const auto found = std::ranges::find_if(directory.records(), is_wanted);
  if (std::ranges::count_if(directory.records(), is_wanted) > 1)
    return failure(ErrorCode::corrupt,
                   "two members are named " + bytes::quote(without_dot(name)) +
                       ", one of them perhaps with \"./\" before it; extract the right one",
                   found->header_offset);
  if (found == directory.records().end()) {
    ListedNames names;
    for (const zip::Record& record : directory.records()) names.add(record.full_name());
    return lack(names, name);
  }
  if (found->method != zip::Method::stored)
    return failure(
        ErrorCode::unsupported,
        "the zip archive has this member compressed or encrypted, so it cannot be mapped; "
        "extract it (unzip FILE MEMBER) and open that",
        found->header_offset);
  TRY_ASSIGN(const std::uint64_t payload,
             zip::read_local_header(file, *found, directory.limit_of(*found)));
  return ByteRange{payload, found->stored_size};
}

}  // namespace

std::optional<MemberPath> member_path(const std::filesystem::path& path) {
  const std::string& text = path.native();
  std::error_code unknown;
  for (std::size_t at = text.find(separator, 1); at != std::string::npos;
       at = text.find(separator, at + separator.size()))
    if (std::filesystem::is_regular_file(text.substr(0, at), unknown))
      return MemberPath{text.substr(0, at), text.substr(at + separator.size())};
  return std::nullopt;
}

Result<ByteRange> find_member(const bytes::ByteSource& file, std::string_view name,
                              const Limits& limits) {
  std::array<std::byte, tar_block> head{};
  TRY(file.read(0, std::span(head).first(std::min<std::uint64_t>(head.size(), file.size()))));
  TRY_ASSIGN(const ByteRange found,
             begins_tar(head) ? find_in_tar(file, name) : find_in_zip(file, name, limits));
  if (found.length == 0)
    return failure(ErrorCode::not_a_checkpoint, "the member is empty", found.offset);
  return found;
}

void place_in_file(Parsed& parsed, const ByteRange& member) noexcept {
  parsed.catalog.shift(member.offset, member.length);
  for (CompressedStorage& storage : parsed.compressed) storage.file_offset += member.offset;
}

}  // namespace weightmap::format
