#include "runtime/services/inspect/content_scan.hpp"

#include <algorithm>
#include <limits>
#include <memory_resource>
#include <utility>
#include <vector>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/format/tar.hpp"
#include "runtime/formats/npz/array.hpp"
#include "runtime/system/file/file_system_extras.hpp"

namespace weightmap {
namespace {

constexpr std::string_view gzip_magic = "\x1f\x8b";
constexpr std::uint32_t most_dims = 64;  // of numpy
constexpr int most_nesting = 7;          // of archives within archives; gzip counts as one
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

// An array of numbers that is all of what has `size` bytes.
bool is_one_array(std::span<const std::byte> head, std::uint64_t size) {
  const auto length = npz::header_length(head);
  if (!length || *length > head.size() || may_have_objects(head)) return false;
  const auto header = npz::read_header(head.first(*length), most_dims);
  const auto elements =
      header ? npz::elements_bytes(*header) : tl::unexpected<Error>(header.error());
  return elements && *elements <= size && *length >= size - *elements;
}

// See unwritten_storages().
void look_for_holes(const os::File* file, std::uint64_t begin, const format::Parsed& parsed,
                    Wholeness& into) {
  const std::optional<ReservedStorages>& reserved = parsed.facts.reserved;
  for (const catalog::StorageEntry& storage : parsed.catalog.storages()) {
    const std::string_view key = parsed.catalog.text(storage.key);
    os::Holes holes;
    if (file != nullptr && storage.crc32 == 0 && !reserved)
      holes = os::find_holes(*file, begin + storage.position, storage.nbytes);
    into.hole_bytes += holes.bytes;
    if (into.damage || !(reserved ? reserved->is_unwritten(key) : holes.is_unwritten)) continue;
    into.damage =
        Error{ErrorCode::corrupt,
              "storage " + bytes::quote(key) + " of " + bytes::counted(storage.nbytes, "byte") +
                  " was never written (weightmap verify names them all)",
              storage.position,
              {}};
  }
}

}  // namespace

Looks looks_of(std::span<const std::byte> head, std::uint64_t size) {
  const std::string_view text = as_text(head);
  Looks looks;
  looks.pickle = begins_as_pickle(head) || may_be_pickle(head, size);
  // The second is the end of an archive, behind which another may lie.
  looks.zip = text.starts_with("PK\3\4") || text.starts_with("PK\5\6");
  looks.tar = format::begins_tar(head);
  looks.array = format::identify_head(head) == format::Kind::npy;
  // Readers inflate as they go, so what is damaged further on may run, too.
  looks.deflated = text.starts_with(gzip_magic) || format::begins_zlib(text);
  looks.packed = format::begins_packed(text);
  return looks;
}

bool is_array(const bytes::ByteSource& content) {
  const auto head = head_of(content, npz::preamble_bytes);
  return head && format::identify_head(*head) == format::Kind::npy;
}

void ContentScan::look_into(const Content& whole) {
  constexpr int most_items = 1000;  // one behind the other
  constexpr int most_archives = 2;  // which may be the same, as each ends with the content
  std::uint64_t at = 0;
  int archives = 0;
  for (int i = 0; at < whole.bytes.size(); ++i) {
    if (i == most_items || archives > most_archives)
      return add_fault(whole, beyond("has more than " + std::to_string(most_items) +
                                     " arrays and pickles, or archives, one behind the other; take "
                                     "them apart and scan those"));
    const Part rest(whole.bytes, at, whole.bytes.size() - at);
    const std::uint64_t length = look_at_first(
        {rest, whole.base + at, whole.name, whole.nesting + (i > 0 ? 1 : 0), whole.is_torchscript},
        archives);
    if (length == 0) return;
    at += length;
  }
}

// What is behind a stream is told by its tensors.
std::uint64_t ContentScan::length_of_stream(const Content& content) {
  Wholeness whole = look_for_damage(content.bytes, nullptr, 0, content.name, options_);
  if (whole.damage) add_fault(content, std::move(*whole.damage));
  return content.bytes.size() - whole.unread_bytes;
}

void ContentScan::look_into_pickles(const Content& content, std::span<const std::byte> bytes) {
  pickled_ = collector_.add(content.name, bytes, content.base, content.is_torchscript).length;
  Looks looks = looks_of(bytes.first(std::min(bytes.size(), format::tar_block)), bytes.size());
  looks.pickle = false;
  look_at_others(content, looks);
  look_behind(content, pickled_);
}

void ContentScan::look_behind(const Content& content, std::uint64_t at) {
  if (at == 0 || at >= content.bytes.size()) return;
  const Part rest(content.bytes, at, content.bytes.size() - at);
  const std::size_t before = into_.pickles.size();
  look_into({rest, content.base + at, content.name, content.nesting + 1, content.is_torchscript});
  collector_.set_hidden(before);
}

std::uint64_t ContentScan::look_at_first(const Content& content, int& archives) {
  const auto head = head_of(content.bytes, format::tar_block);
  if (!head) return add_fault(content, head.error()), 0;
  const Looks looks = looks_of(*head, content.bytes.size());
  std::uint64_t length = 0;
  if (looks.pickle) {
    const auto found = scan_pickles(content, is_named_as_pickle(content.name));
    if (!found) add_fault(content, found.error());
    if (found && *found) length = is_legacy_ ? length_of_stream(content) : pickled_;
  }
  if (looks.zip || looks.tar || looks.deflated) ++archives;
  return std::max(length, look_at_others(content, looks));
}

std::uint64_t ContentScan::look_at_others(const Content& content, const Looks& looks) {
  if (!looks.zip && !looks.tar && !looks.deflated && !looks.array && !looks.packed) return 0;
  if (content.nesting > most_nesting) {
    add_fault(content, beyond("is an archive within " + std::to_string(content.nesting) +
                              " others, and was not looked into; unpack it and scan that"));
    return 0;
  }
  const auto keep = [&](const Result<void>& ran) {
    if (!ran) add_fault(content, ran.error());
  };
  if (looks.zip) keep(scan_zip(content));
  if (looks.tar) keep(scan_tar(content));
  if (looks.deflated || looks.packed) keep(scan_deflated(content));
  if (!looks.array) return 0;
  const Result<std::uint64_t> array = scan_array(content);
  if (!array) add_fault(content, array.error());
  return array ? *array : 0;
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
    if (member->is_link) continue;
    const Part bytes(content.bytes, member->offset, member->size);
    const Content inner{bytes, content.base + member->offset, content.inner(member->name),
                        content.nesting + 1};
    if (is_named_as_code(member->name)) into_.code.push_back(inner.name);
    const std::size_t before = into_.pickles.size();
    look_into(inner);
    if (is_named_as_pickle(member->name) && into_.pickles.size() == before && member->size > 0)
      TRY(scan_pickles(inner, true));  // which is faulty
  }
}

Result<std::uint64_t> ContentScan::scan_array(const Content& content) {
  constexpr std::uint64_t longest_header = 1 << 17;
  const std::uint64_t size = content.bytes.size();
  TRY_ASSIGN(const std::vector<std::byte> head, head_of(content.bytes, longest_header));
  TRY_ASSIGN(const std::uint64_t length, npz::header_length(head));
  if (length > head.size())
    return failure(ErrorCode::corrupt, "ends within the header of the array", head.size());
  const std::span header = std::span(head).first(length);
  if (!may_have_objects(header)) {
    TRY_ASSIGN(const npz::ArrayHeader read, npz::read_header(header, most_dims));
    TRY_ASSIGN(const std::uint64_t elements, npz::elements_bytes(read));
    return elements < size - length ? length + elements : size;
  }
  const bool is_surely = as_text(header).find("'|O'") != std::string::npos;
  const Part pickle(content.bytes, length, size - length);
  TRY_ASSIGN(
      const bool found,
      scan_pickles({pickle, content.base + length, content.name, content.nesting + 1}, is_surely));
  return found ? length + pickled_ : 0;
}

bool ContentScan::may_hold_something(const bytes::ByteSource& compressed, std::uint64_t size,
                                     zip::Wrapping wrapping) {
  constexpr std::uint64_t enough = std::uint64_t{128} << 10;
  constexpr std::uint64_t cost = std::uint64_t{64} << 10;
  if (heads_left_ < cost) return true;
  heads_left_ -= cost;
  const auto head = head_of(compressed, enough);
  if (!head) return true;
  const auto inflated = zip::inflate_head(*head, wrapping);
  if (!inflated) return true;
  const Looks looks = looks_of(*inflated, size);
  if (looks.array && !looks.pickle && is_one_array(*inflated, size)) return false;
  // Behind a short member of gzip the content goes on with the next one.
  return looks.any() ||
         (wrapping == zip::Wrapping::gzip && inflated->size() < zip::inflated_head_bytes);
}

Result<void> ContentScan::scan_deflated(const Content& content) {
  TRY_ASSIGN(const std::vector<std::byte> head, head_of(content.bytes, format::head_bytes));
  const bool is_gzip = as_text(head).starts_with(gzip_magic);
  const zip::Wrapping wrapping = is_gzip ? zip::Wrapping::gzip : zip::Wrapping::zlib;
  if (!is_gzip && !format::begins_zlib(as_text(head)))
    return failure(ErrorCode::unsupported,
                   "is compressed with bzip2, xz, lzma or lz4, and was not looked into; decompress "
                   "it and scan that");
  constexpr std::uint64_t any_size = std::numeric_limits<std::uint64_t>::max();
  if (!may_hold_something(content.bytes, any_size, wrapping)) return {};
  const std::string how = is_gzip ? "is compressed with gzip" : "is compressed with zlib";
  if (content.bytes.size() > bytes_left_)
    return tl::unexpected<Error>(
        beyond(how + " and too large to be looked into; decompress it and scan that"));
  TRY_ASSIGN(const std::vector<std::byte> stored, head_of(content.bytes, content.bytes.size()));
  Result<std::vector<std::byte>> inflated = zip::inflate_all(stored, wrapping, bytes_left_);
  if (!inflated) {
    Error error = std::move(inflated.error());
    error.message = how + ": " + error.message + "; decompress it and scan that";
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
  const bool has_mark = begins_as_pickle(head);
  const std::uint64_t most = std::min(content.bytes.size(), bytes_left_);
  const std::size_t before = into_.pickles.size();
  PickleCollector::Added added;
  std::uint64_t bytes = std::min<std::uint64_t>(
      has_mark || is_surely ? first_bytes : std::uint64_t{format::head_bytes}, most);
  for (;; bytes = std::min(most, std::max(added.needs, 2 * bytes))) {
    into_.pickles.resize(before);
    TRY_ASSIGN(added, add_pickles(content, bytes));
    if (added.needs == 0 || added.needs > content.bytes.size() || bytes == most) break;
  }
  bytes_left_ -= bytes;
  pickled_ = added.length;
  const bool is_cut = added.needs > most && added.needs <= content.bytes.size();
  if (is_cut)
    into_.pickles.back().fault = beyond("has more than the " + std::to_string(most) +
                                        " bytes that are looked at; the rest was not");
  if (is_legacy_) drop_storages(before);
  const bool is_nameless = std::none_of(
      into_.pickles.begin() + static_cast<std::ptrdiff_t>(before), into_.pickles.end(),
      [](const PickleGlobals& pickle) { return pickle.fault || !pickle.globals.empty(); });
  const bool is_text = !has_mark && is_nameless && (content.nesting > 0 || !content.name.empty());
  const bool is_found = is_surely || is_cut || (added.is_believable && !is_text);
  if (!is_found) into_.pickles.resize(before);
  return is_surely || is_cut || added.is_believable;
}

Result<PickleCollector::Added> ContentScan::add_pickles(const Content& content,
                                                        std::uint64_t length) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, head_of(content.bytes, length));
  const std::size_t before = into_.pickles.size();
  PickleCollector::Added added =
      collector_.add(content.name, bytes, content.base, content.is_torchscript);
  if (is_legacy_) {
    if (into_.pickles.size() - before > legacy_pickles) added.needs = 0;
    return added;
  }
  if (added.length == length && length < content.bytes.size()) added.needs = length + 1;
  into_.pickles[before].bytes_behind += content.bytes.size() - length;
  if (content.nesting == 0) collector_.set_hidden(before + 1);
  return added;
}

// The fifth pickle is followed by bytes of tensors.
void ContentScan::drop_storages(std::size_t before) {
  if (into_.pickles.size() - before > legacy_pickles) into_.pickles.resize(before + legacy_pickles);
  into_.pickles[before].bytes_behind = 0;
}

Wholeness look_for_damage(const bytes::ByteSource& content, const os::File* file,
                          std::uint64_t begin, const std::filesystem::path& path,
                          const OpenOptions& options) {
  std::pmr::monotonic_buffer_resource memory;
  OpenStats stats;
  format::Input input(content, 0, content.size(), memory);
  Wholeness made;
  const Result<const FormatRow*> known = format_of(input, path, options.limits, stats);
  if (!known || (*known)->parse == nullptr) return made;
  const FormatRow* row = *known;
  Result<format::Parsed> parsed = parse_file(row, input, options, stats, memory);
  if (parsed) {
    made.unread_bytes = parsed->facts.unread_bytes;
    look_for_holes(file, begin, *parsed, made);
    return made;
  }
  const bool has_no_pickles =
      row->kind == format::Kind::safetensors || row->kind == format::Kind::gguf;
  if (has_no_pickles || parsed.error().code == ErrorCode::corrupt)
    made.damage = std::move(parsed.error());
  return made;
}

}  // namespace weightmap
