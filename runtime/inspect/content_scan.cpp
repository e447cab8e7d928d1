#include "runtime/inspect/content_scan.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/format/identify.hpp"
#include "runtime/format/tar.hpp"
#include "runtime/npz/array_header.hpp"

namespace weightmap {
namespace {

constexpr int most_nesting = 7;  // of archives within archives; gzip counts as one
constexpr std::uint64_t first_bytes = std::uint64_t{1} << 20;
// The pickles of the protocol, the system, the object and the keys follow the magic number of a
// torch.save before 1.6, and then the storages.
constexpr std::size_t legacy_pickles = 5;

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::vector<std::byte>> head_of(const bytes::ByteSource& source, std::uint64_t most) {
  std::vector<std::byte> head(std::min(most, source.size()));
  TRY(source.read(0, head));
  return head;
}

Error beyond(std::string what) {
  return {ErrorCode::limit_exceeded, std::move(what), Error::no_offset, {}};
}

// Python joins two texts that follow one another.
bool has_joined_texts(std::string_view literal) noexcept {
  char quote = 0;  // of the text that this is in
  bool ends_text = false;
  for (const char c : literal) {
    const bool is_quote = c == '\'' || c == '"';
    if (quote != 0) {
      ends_text = c == quote;
      if (ends_text) quote = 0;
    } else if (is_quote) {
      if (ends_text) return true;
      quote = c;
    } else if (c != ' ' && c != '\t') {
      ends_text = false;
    }
  }
  return false;
}

// Names of types with objects in them have these letters, and those of numbers and texts do not;
// what is not all in `head`, or not written as numpy does, may have them.
bool may_have_objects(std::span<const std::byte> head) noexcept {
  const auto length = npz::header_length(head);
  if (!length || *length > head.size()) return true;
  const std::string_view text = as_text(head.first(*length));
  const std::size_t literal = std::min(text.size(), text.find('{'));
  return text.find('O') != std::string_view::npos || text.find("object") != text.npos ||
         text.find("'T'") != text.npos || text.substr(literal).find('\\') != text.npos ||
         has_joined_texts(text.substr(literal));
}

}  // namespace

Look look_of(std::span<const std::byte> head) noexcept {
  if (begins_as_pickle(head)) return Look::pickle;
  // The second is the end of an archive, behind which another may lie.
  if (as_text(head).starts_with("PK\3\4") || as_text(head).starts_with("PK\5\6")) return Look::zip;
  if (as_text(head).starts_with("\x1f\x8b")) return Look::gzip;
  if (format::identify_head(head) == format::Kind::npy)
    return may_have_objects(head) ? Look::objects : Look::nothing;
  return format::begins_tar(head) ? Look::tar : Look::nothing;
}

void ContentScan::look_into(const Content& content) {
  const auto head = head_of(content.bytes, format::tar_block);
  if (!head) return add_fault(content, head.error());
  const Look look = look_of(*head);
  if (look == Look::nothing) return;
  if (look == Look::pickle) {
    if (auto scanned = scan_pickles(content, is_named_as_pickle(content.name)); !scanned)
      add_fault(content, std::move(scanned.error()));
    return;
  }
  if (content.nesting > most_nesting)
    return add_fault(content, beyond("is an archive within " + std::to_string(content.nesting) +
                                     " others, and was not looked into; unpack it and scan that"));
  Result<void> ran = look == Look::zip       ? scan_zip(content)
                     : look == Look::tar     ? scan_tar(content)
                     : look == Look::objects ? scan_objects(content)
                                             : scan_gzip(content);
  if (!ran) add_fault(content, std::move(ran.error()));
}

void ContentScan::add_fault(const Content& content, Error error) {
  PickleGlobals& made = into_.pickles.emplace_back();
  made.record = content.name;
  if (error.file_offset != Error::no_offset) error.file_offset += content.base;
  made.fault = std::move(error);
}

Result<void> ContentScan::scan_tar(const Content& content) {
  format::TarReader reader(content.bytes);
  for (;;) {
    TRY_ASSIGN(const std::optional<format::TarMember> member, reader.next());
    if (!member) return {};
    const Part bytes(content.bytes, member->offset, member->size);
    const Content inner{bytes, content.base + member->offset, content.inner(member->name),
                        content.nesting + 1};
    if (is_named_as_code(member->name)) into_.code.push_back(inner.name);
    const std::size_t before = into_.pickles.size();
    look_into(inner);
    if (is_named_as_pickle(member->name) && into_.pickles.size() == before && member->size > 0)
      TRY(scan_pickles(inner, true));  // of a protocol that has no mark
  }
}

Result<void> ContentScan::scan_objects(const Content& content) {
  constexpr std::uint64_t longest_header = 1 << 17;
  TRY_ASSIGN(const std::vector<std::byte> head, head_of(content.bytes, longest_header));
  TRY_ASSIGN(const std::uint64_t length, npz::header_length(head));
  if (length > head.size())
    return failure(ErrorCode::corrupt, "ends within the header of the array", head.size());
  const bool is_surely = as_text(std::span(head).first(length)).find("'|O'") != std::string::npos;
  const Part pickle(content.bytes, length, content.bytes.size() - length);
  TRY(scan_pickles({pickle, content.base + length, content.name, content.nesting + 1}, is_surely));
  return {};
}

std::optional<Look> ContentScan::look_inside(const bytes::ByteSource& compressed,
                                             zip::Wrapping wrapping) {
  constexpr std::uint64_t enough = std::uint64_t{128} << 10;
  constexpr std::uint64_t cost = std::uint64_t{64} << 10;
  if (heads_left_ < cost) return std::nullopt;
  heads_left_ -= cost;
  const auto head = head_of(compressed, enough);
  if (!head) return std::nullopt;
  const auto inflated = zip::inflate_head(*head, wrapping);
  if (!inflated) return std::nullopt;
  const Look look = look_of(*inflated);
  // Behind a short member of gzip the content goes on with the next one.
  const bool may_go_on =
      wrapping == zip::Wrapping::gzip && inflated->size() < zip::inflated_head_bytes;
  return look == Look::nothing && may_go_on ? std::nullopt : std::optional(look);
}

Result<void> ContentScan::scan_gzip(const Content& content) {
  if (look_inside(content.bytes, zip::Wrapping::gzip) == Look::nothing) return {};
  if (content.bytes.size() > bytes_left_)
    return tl::unexpected<Error>(
        beyond("is compressed with gzip and too large to be looked into; decompress it and scan "
               "that"));
  TRY_ASSIGN(const std::vector<std::byte> stored, head_of(content.bytes, content.bytes.size()));
  Result<std::vector<std::byte>> inflated = zip::inflate_gzip(stored, bytes_left_);
  if (!inflated) {
    Error error = std::move(inflated.error());
    error.message = "is compressed with gzip: " + error.message + "; decompress it and scan that";
    return tl::unexpected<Error>(std::move(error));
  }
  bytes_left_ -= inflated->size();
  const bytes::MemorySource source(*inflated);
  look_into({source, content.base, content.name, content.nesting + 1});
  return {};
}

Result<bool> ContentScan::scan_pickles(const Content& content, bool is_surely) {
  TRY_ASSIGN(const std::vector<std::byte> head, head_of(content.bytes, format::head_bytes));
  is_legacy_ = format::begins_legacy_stream(head);
  const bool is_pickle = begins_as_pickle(head);
  const std::uint64_t most = std::min(content.bytes.size(), bytes_left_);
  const std::size_t before = into_.pickles.size();
  for (std::uint64_t bytes = std::min(first_bytes, most);; bytes = std::min(2 * bytes, most)) {
    into_.pickles.resize(before);
    TRY_ASSIGN(const bool wants_more, add_pickles(content, bytes));
    if (wants_more && bytes == most && most < content.bytes.size())
      into_.pickles.back().fault = beyond("has more than the " + std::to_string(most) +
                                          " bytes that are looked at; the rest was not");
    if (wants_more && bytes < most && is_pickle) continue;
    bytes_left_ -= bytes;
    break;
  }
  if (is_legacy_) drop_storages(before);
  const std::optional<Error>& fault = into_.pickles[before].fault;
  const bool is_cut = is_pickle && fault && fault->code == ErrorCode::limit_exceeded;
  const bool found = is_surely || is_cut || is_believable(into_.pickles[before]);
  if (!found) into_.pickles.resize(before);
  return found;
}

// Returns true if more bytes could reveal more.
Result<bool> ContentScan::add_pickles(const Content& content, std::uint64_t length) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, head_of(content.bytes, length));
  const std::size_t before = into_.pickles.size();
  const bool wants_more = collector_.add(content.name, bytes, content.base, content.is_torchscript);
  if (is_legacy_) return wants_more && into_.pickles.size() - before <= legacy_pickles;
  into_.pickles[before].bytes_behind += content.bytes.size() - length;
  if (content.nesting == 0) collector_.set_hidden(before + 1);
  return wants_more;
}

// The fifth pickle is followed by bytes of tensors.
void ContentScan::drop_storages(std::size_t before) {
  if (into_.pickles.size() - before > legacy_pickles) into_.pickles.resize(before + legacy_pickles);
  into_.pickles[before].bytes_behind = 0;
}

}  // namespace weightmap
