#include "runtime/shared_catalog/published.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/catalog/view_size.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weightmap::catalog {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t longest_text = 4096;
// Above any catalog there can be, and small enough for sums of products.
constexpr std::uint64_t most_block_bytes = std::uint64_t{1} << 40;
// The code of a format is its place here.
constexpr std::array<std::string_view, 2> formats = {"torch_zip", "safetensors"};

std::uint16_t code_of_format(std::string_view format) noexcept {
  return static_cast<std::uint16_t>(std::find(formats.begin(), formats.end(), format) -
                                    formats.begin());
}

struct Preamble {
  static constexpr std::uint64_t magic_number = 0x474F4C5443454853;
  static constexpr std::uint32_t current_version = 4;
  // What no_text says of a text is that there is none, not even an empty one.
  static constexpr std::uint32_t no_text = 0xFFFFFFFF;

  std::uint64_t magic;
  std::uint64_t sum;  // XXH3 of all from here to the sums of chunks
  std::uint32_t version;
  std::uint32_t dtypes;  // how many element types the writer knew
  std::uint64_t preamble_bytes;
  std::uint64_t block_bytes;
  std::uint64_t tensors;
  // Of the source.
  std::uint64_t device, inode, size;
  std::int64_t mtime_ns, ctime_ns;
  // Limits.
  std::uint64_t limit_pickle_bytes, limit_directory_bytes, limit_record_bytes, limit_base_memory;
  std::uint32_t limit_depth, limit_tensors, limit_rank;
  std::uint32_t format_version_bytes;
  std::uint32_t source_bytes;
  std::uint8_t strategy, big_endian, byte_order_assumed, names_torch_safe_only;
  // The other files.
  std::uint16_t format, has_index;
  std::uint32_t others;
  std::uint64_t others_bytes;
  // What the file says.
  std::uint64_t archive_version, storage_alignment, pickle_bytes, tensors_not_indexed;
  std::uint64_t storages_calculated, storages_by_directory, storages_by_header;
};
static_assert(std::has_unique_object_representations_v<Preamble>);  // no padding

std::uint64_t sum_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

constexpr std::uint64_t chunks_of(std::uint64_t block_bytes) noexcept {
  return (block_bytes + Published::chunk_bytes - 1) / Published::chunk_bytes;
}

constexpr std::uint64_t groups_of(std::uint64_t block_bytes) noexcept {
  return (chunks_of(block_bytes) + Published::group_chunks - 1) / Published::group_chunks;
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

// Where each part begins.
struct Layout {
  explicit Layout(const Preamble& preamble) noexcept
      : format_version(sizeof(Preamble)),
        source(format_version + (preamble.format_version_bytes == Preamble::no_text
                                     ? 0
                                     : preamble.format_version_bytes)),
        others(source + preamble.source_bytes),
        group_sums(round_up(others + preamble.others_bytes, sizeof(std::uint64_t))),
        sums(group_sums + groups_of(preamble.block_bytes) * sizeof(std::uint64_t)),
        block(round_up(sums + chunks_of(preamble.block_bytes) * sizeof(std::uint64_t), page)) {}
  std::uint64_t format_version, source, others, group_sums, sums, block;
};

Preamble preamble_of(const Description& of, const Catalog& catalog) noexcept {
  const bool has_version = of.format_version && of.format_version->size() <= longest_text;
  Preamble made{};
  made.magic = Preamble::magic_number;
  made.version = Preamble::current_version;
  made.dtypes = dtype_count;
  made.block_bytes = catalog.block().size();
  made.tensors = catalog.size();
  made.device = of.generation.device;
  made.inode = of.generation.inode;
  made.size = of.generation.size;
  made.mtime_ns = of.generation.mtime_ns;
  made.ctime_ns = of.generation.ctime_ns;
  made.limit_pickle_bytes = of.limits.pickle_bytes;
  made.limit_directory_bytes = of.limits.directory_bytes;
  made.limit_record_bytes = of.limits.record_bytes;
  made.limit_base_memory = of.limits.base_memory;
  made.limit_depth = of.limits.depth;
  made.limit_tensors = of.limits.tensors;
  made.limit_rank = of.limits.rank;
  made.format_version_bytes =
      has_version ? static_cast<std::uint32_t>(of.format_version->size()) : Preamble::no_text;
  made.source_bytes =
      of.source.size() <= longest_text ? static_cast<std::uint32_t>(of.source.size()) : 0;
  made.strategy = static_cast<std::uint8_t>(of.strategy);
  made.big_endian = of.big_endian;
  made.byte_order_assumed = of.byte_order_assumed;
  made.names_torch_safe_only = of.names_torch_safe_only;
  made.format = code_of_format(of.format);
  made.has_index = of.has_index;
  made.others = static_cast<std::uint32_t>(of.others.size());
  made.others_bytes = file_list_bytes(of.others);
  made.archive_version = of.version;
  made.storage_alignment = of.storage_alignment;
  made.pickle_bytes = of.pickle_bytes;
  made.tensors_not_indexed = of.tensors_not_indexed;
  made.storages_calculated = of.storages_calculated;
  made.storages_by_directory = of.storages_by_directory;
  made.storages_by_header = of.storages_by_header;
  made.preamble_bytes = Layout(made).block;
  return made;
}

// From a private copy, as the preamble is one.
Result<std::vector<ListedFile>> others_of(const Preamble& read, std::span<const std::byte> bytes) {
  const auto list = bytes.subspan(Layout(read).others, read.others_bytes);
  return read_file_list(std::vector<std::byte>(list.begin(), list.end()), read.others, read.size);
}

Result<Description> description_of(const Preamble& read, std::span<const std::byte> bytes) {
  const Layout at(read);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  Description made;
  TRY_ASSIGN(made.others, others_of(read, bytes));
  made.format = formats[read.format];
  made.has_index = read.has_index != 0;
  made.generation = {read.device, read.inode, read.size, read.mtime_ns, read.ctime_ns};
  made.limits.pickle_bytes = read.limit_pickle_bytes;
  made.limits.directory_bytes = read.limit_directory_bytes;
  made.limits.record_bytes = read.limit_record_bytes;
  made.limits.base_memory = read.limit_base_memory;
  made.limits.depth = read.limit_depth;
  made.limits.tensors = read.limit_tensors;
  made.limits.rank = read.limit_rank;
  made.version = read.archive_version;
  made.storage_alignment = read.storage_alignment;
  made.pickle_bytes = read.pickle_bytes;
  made.tensors_not_indexed = read.tensors_not_indexed;
  made.storages_calculated = read.storages_calculated;
  made.storages_by_directory = read.storages_by_directory;
  made.storages_by_header = read.storages_by_header;
  made.strategy = static_cast<OffsetStrategy>(read.strategy);
  made.big_endian = read.big_endian != 0;
  made.byte_order_assumed = read.byte_order_assumed != 0;
  made.names_torch_safe_only = read.names_torch_safe_only != 0;
  if (read.format_version_bytes != Preamble::no_text)
    made.format_version.emplace(text + at.format_version, read.format_version_bytes);
  made.source.assign(text + at.source, read.source_bytes);
  return made;
}

tl::unexpected<Error> refuse(const std::string& why) {
  return failure(ErrorCode::corrupt, "the shared catalog " + why);
}

// A private copy of the preamble, so that what was checked stays what is used.
Result<Preamble> read_preamble(std::span<const std::byte> bytes) {
  Preamble read;
  if (bytes.size() < sizeof read) return refuse("is truncated");
  std::memcpy(&read, bytes.data(), sizeof read);
  if (read.magic != Preamble::magic_number) return refuse("is something else");
  if (read.version != Preamble::current_version || read.dtypes != dtype_count)
    return refuse("was made by another version");
  const bool has_sizes =
      read.block_bytes >= sizeof(Header) && read.block_bytes <= most_block_bytes &&
      (read.format_version_bytes <= longest_text ||
       read.format_version_bytes == Preamble::no_text) &&
      read.source_bytes <= longest_text && read.others_bytes <= longest_file_list &&
      read.preamble_bytes == Layout(read).block;
  if (!has_sizes) return refuse("has sizes that cannot be");
  if (bytes.size() != read.preamble_bytes + read.block_bytes)
    return refuse("has " + std::to_string(bytes.size()) + " bytes, " +
                  std::to_string(read.preamble_bytes + read.block_bytes) + " were expected");
  constexpr std::size_t summed = offsetof(Preamble, version);
  const std::uint64_t sums = Layout(read).sums;
  if (sum_of(bytes.subspan(summed, sums - summed)) != read.sum)
    return refuse("is damaged in its first " + std::to_string(sums) + " bytes");
  if (read.strategy > static_cast<std::uint8_t>(OffsetStrategy::headers))
    return refuse("names a strategy that is not known");
  if (read.format >= formats.size()) return refuse("names a format that is not known");
  return read;
}

// std::has_single_bit() counts the bits, by a function of the compiler's library, which lies in a
// page that an open would touch for this alone.
constexpr bool is_power_of_two(std::uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

// Whether the sections that the counts make up are exactly this block.
bool fits(const Header& header, const Preamble& preamble) noexcept {
  const std::uint64_t size = preamble.block_bytes;
  for (const std::uint64_t count : {header.tensors, header.storages, header.dims, header.path_parts,
                                    header.locations, header.slots, header.string_bytes})
    if (count > size) return false;
  return header.magic == Header::magic_number && header.version == Header::current_version &&
         header.header_bytes == sizeof(Header) && header.block_bytes == size &&
         header.tensors == preamble.tensors && header.tensors < Catalog::none &&
         is_power_of_two(header.slots) && Sections(header).end == size;
}

using Sums = std::span<const std::uint64_t>;

// Precondition: multiples of 8, as all parts but the texts are.
Sums sums_in(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t end) noexcept {
  return {reinterpret_cast<const std::uint64_t*>(bytes.data() + begin), (end - begin) / 8};
}

// The sum over group `index` of the sums of chunks; over the last one, of all that is left of them.
std::uint64_t sum_of_group(Sums sums, std::size_t index, std::size_t groups) noexcept {
  const Sums rest = sums.subspan(index * Published::group_chunks);
  return sum_of(std::as_bytes(index + 1 == groups ? rest : rest.first(Published::group_chunks)));
}

// What std::stoll takes without throwing.
bool is_integer(std::string_view text) noexcept {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool has_code_for_format(std::string_view format) noexcept {
  return code_of_format(format) < formats.size();
}

std::vector<std::byte> make_preamble(const Description& description, const Catalog& catalog) {
  Preamble preamble = preamble_of(description, catalog);
  const Layout at(preamble);
  std::vector<std::byte> bytes(at.block);
  const auto put = [&bytes](std::uint64_t offset, const void* from, std::size_t size) {
    if (size != 0) std::memcpy(bytes.data() + offset, from, size);
  };
  if (preamble.format_version_bytes != Preamble::no_text)
    put(at.format_version, description.format_version->data(), preamble.format_version_bytes);
  put(at.source, description.source.data(), preamble.source_bytes);
  write_file_list(description.others, bytes.data() + at.others);
  const std::span<const std::byte> block = catalog.block();
  for (std::size_t i = 0; i < chunks_of(block.size()); ++i) {
    const std::size_t offset = i * Published::chunk_bytes;
    const std::uint64_t sum =
        sum_of(block.subspan(offset, std::min(Published::chunk_bytes, block.size() - offset)));
    put(at.sums + i * sizeof sum, &sum, sizeof sum);
  }
  const std::size_t groups = groups_of(block.size());
  for (std::size_t i = 0; i < groups; ++i) {
    const std::uint64_t sum = sum_of_group(sums_in(bytes, at.sums, at.block), i, groups);
    put(at.group_sums + i * sizeof sum, &sum, sizeof sum);
  }
  put(0, &preamble, sizeof preamble);
  constexpr std::size_t summed = offsetof(Preamble, version);
  preamble.sum = sum_of(std::span<const std::byte>(bytes).subspan(summed, at.sums - summed));
  put(0, &preamble, sizeof preamble);
  return bytes;
}

Result<Summary> summarize(std::span<const std::byte> bytes) {
  TRY_ASSIGN(const Preamble preamble, read_preamble(bytes));
  TRY_ASSIGN(Description description, description_of(preamble, bytes));
  return Summary{std::move(description), preamble.tensors};
}

Result<Published> Published::read(std::span<const std::byte> bytes) {
  TRY_ASSIGN(const Preamble preamble, read_preamble(bytes));
  TRY_ASSIGN(Description description, description_of(preamble, bytes));
  const Layout at(preamble);
  const std::span<const std::byte> block = bytes.subspan(at.block);
  Header header;
  std::memcpy(&header, block.data(), sizeof header);
  if (!fits(header, preamble)) return refuse("has a header that does not fit it");
  Published made(std::move(description), header, block, sums_in(bytes, at.group_sums, at.sums),
                 sums_in(bytes, at.sums, at.block));
  // The header was copied before; if it is as it was written now, it was then.
  if (!made.check_chunk(0)) return refuse("is damaged in its first chunk");
  return made;
}

std::vector<std::uint64_t> Published::bits_for(const Header& header,
                                               std::span<const std::byte> block) {
  const std::size_t notes = header.tensors / noted_entries + 1;
  return std::vector<std::uint64_t>(CheckedBits::words_for(groups_of(block.size())) +
                                    CheckedBits::words_for(chunks_of(block.size())) +
                                    2 * CheckedBits::words_for(notes));
}

Published::Published(Description description, const Header& header,
                     std::span<const std::byte> block, Sums group_sums, Sums sums)
    : description_(std::move(description)),
      header_(header),
      at_(header),
      block_(block),
      group_sums_(group_sums),
      sums_(sums),
      catalog_(header, block),
      bits_(bits_for(header, block)),
      free_bits_(bits_),
      checked_groups_(free_bits_, groups_of(block.size())),
      checked_chunks_(free_bits_, chunks_of(block.size())),
      checked_views_(free_bits_, header.tensors / noted_entries + 1),
      checked_entries_(free_bits_, header.tensors / noted_entries + 1) {}

bool Published::check_group(std::size_t index) noexcept {
  if (checked_groups_.test(index)) return true;
  if (sum_of_group(sums_, index, group_sums_.size()) != group_sums_[index]) return false;
  checked_groups_.set(index);
  return true;
}

bool Published::check_chunk(std::size_t index) noexcept {
  if (checked_chunks_.test(index)) return true;
  if (!check_group(index / group_chunks)) return false;
  const std::size_t offset = index * chunk_bytes;
  const auto chunk = block_.subspan(offset, std::min(chunk_bytes, block_.size() - offset));
  if (sum_of(chunk) != sums_[index]) return false;
  checked_chunks_.set(index);
  return true;
}

bool Published::check_range(std::uint64_t offset, std::uint64_t length) noexcept {
  if (length == 0) return true;
  const std::size_t last = (offset + length - 1) / chunk_bytes;
  for (std::size_t chunk = offset / chunk_bytes; chunk <= last; ++chunk)
    if (!check_chunk(chunk)) return false;
  return true;
}

template <class T>
bool Published::check_items(std::uint64_t section, std::uint64_t count, std::uint64_t index,
                            std::uint64_t length) noexcept {
  return bytes::contains(count, index, length) &&
         check_range(section + index * sizeof(T), length * sizeof(T));
}

bool Published::check_text(const Text& text) noexcept {
  return check_items<char>(at_.strings, header_.string_bytes, text.offset, text.length);
}

bool Published::check_storage(std::size_t index) noexcept {
  if (!check_items<StorageEntry>(at_.storages, header_.storages, index, 1)) return false;
  const StorageEntry& storage = catalog_.storages()[index];
  return lies_in_its_file(storage) && check_text(storage.key);
}

bool Published::lies_in_its_file(const StorageEntry& storage) const noexcept {
  if (storage.source == 0)
    return bytes::contains(description_.generation.size, storage.position, storage.nbytes);
  if (storage.source > description_.others.size()) return false;
  const ListedFile& file = description_.others[storage.source - 1];
  return storage.position >= file.base &&
         bytes::contains(file.generation.size, storage.position - file.base, storage.nbytes);
}

bool Published::lies_in_a_file(std::uint64_t position, std::uint64_t length) const noexcept {
  const auto after = std::upper_bound(
      description_.others.begin(), description_.others.end(), position,
      [](std::uint64_t wanted, const ListedFile& file) { return wanted < file.base; });
  if (after == description_.others.begin())
    return bytes::contains(description_.generation.size, position, length);
  const ListedFile& file = *(after - 1);
  return bytes::contains(file.generation.size, position - file.base, length);
}

bool Published::is_view_sound(std::size_t index) noexcept {
  if (!check_items<Entry>(at_.entries, header_.tensors, index, 1)) return false;
  const Entry& entry = catalog_[index];
  return static_cast<std::size_t>(entry.dtype) < dtype_count && check_dims(entry) &&
         lies_in_a_file(entry.position, entry.extent) && check_text(entry.name);
}

bool Published::is_entry_sound(std::size_t index) noexcept {
  if (!check_view(index)) return false;
  const Entry& entry = catalog_[index];
  return check_place(entry) && check_path(entry) &&
         check_items<Text>(at_.locations, header_.locations, entry.location, 1) &&
         check_text(items<Text>(at_.locations)[entry.location]);
}

// What it calls for entry `index` answers for that one alone.
template <class IsSound>
bool Published::check_new(std::size_t index, CheckedBits& checked,
                          const IsSound& is_sound) noexcept {
  if (!is_sound(index)) return false;
  const std::size_t note = index / noted_entries;
  const std::size_t end = std::min(catalog_.size(), (note + 1) * noted_entries);
  for (std::size_t i = note * noted_entries; i < end; ++i)
    if (i != index && !is_sound(i)) return true;
  checked.set(note);
  return true;
}

bool Published::check_new_view(std::size_t index) noexcept {
  return check_new(index, checked_views_, [this](std::size_t i) { return is_view_sound(i); });
}

bool Published::check_new_entry(std::size_t index) noexcept {
  return check_new(index, checked_entries_, [this](std::size_t i) { return is_entry_sound(i); });
}

// The view reaches what the entry says.
bool Published::check_dims(const Entry& entry) noexcept {
  const std::uint64_t length = std::uint64_t{2} * entry.rank;
  // Near ones lie in the first chunk, which was checked when this was made.
  if (!bytes::contains(near_dims, entry.dims, length) &&
      (entry.dims < near_dims ||
       !check_items<std::int64_t>(at_.dims, header_.dims, entry.dims - near_dims, length)))
    return false;
  const std::int64_t* dims = catalog_.dims(entry);
  for (unsigned i = 0; i < length; ++i)
    if (dims[i] < 0) return false;
  ViewSize size;
  return measure(entry.dtype, dims, entry.rank, size) && size.extent == entry.extent &&
         size.nbytes == entry.nbytes;
}

// As the parse proved it: the view lies within its storage.
bool Published::check_place(const Entry& entry) noexcept {
  if (!check_storage(entry.storage) || entry.storage_offset < 0) return false;
  const StorageEntry& storage = catalog_.storages()[entry.storage];
  const std::uint64_t start = entry.position - storage.position;
  std::uint64_t expected = 0;
  return entry.position >= storage.position &&
         bytes::contains(storage.nbytes, start, entry.extent) &&
         (entry.extent == 0 ||
          (bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(entry.storage_offset),
                                             block_of(entry.dtype).bytes, &expected) &&
           start == expected));
}

// The parts and the dots between them are the name.
bool Published::check_path(const Entry& entry) noexcept {
  if (entry.path.first == Path::is_name) return true;
  if (!check_items<std::uint32_t>(at_.path_parts, header_.path_parts, entry.path.first,
                                  entry.path.length))
    return false;
  const std::string_view name = catalog_.name(entry);
  if (entry.path.length == 0) return name.empty();
  std::uint64_t used = 0;
  bool sound = true;
  catalog_.visit_path(entry, [&](const Catalog::PathText& part) {
    used += part.text.size() + 1;
    sound = sound && (!part.is_integer || is_integer(part.text));
  });
  return sound && used == name.size() + 1;
}

std::optional<std::uint32_t> Published::find(std::string_view wanted) noexcept {
  const std::uint64_t hash = hash_name(wanted, header_.seed);
  const std::uint64_t mask = header_.slots - 1;
  const auto* slots = items<std::uint64_t>(at_.slots);
  std::uint64_t at = hash & mask;
  for (std::uint64_t probes = 0; probes <= mask; ++probes, at = (at + 1) & mask) {
    if (!check_items<std::uint64_t>(at_.slots, header_.slots, at, 1)) return std::nullopt;
    const std::uint64_t slot = slots[at];
    if (slot == 0) return Catalog::none;
    if (slot >> 32 != hash >> 32) continue;
    const auto index = static_cast<std::uint32_t>(slot) - 1;
    if (!check_view(index)) return std::nullopt;
    if (catalog_.name(catalog_[index]) == wanted) return index;
  }
  return std::nullopt;  // a table without an empty slot
}

bool Published::check_all() noexcept {
  if (!check_range(0, block_.size())) return false;
  for (std::size_t i = 0; i < header_.storages; ++i)
    if (!check_storage(i)) return false;
  for (std::size_t i = 0; i < header_.tensors; ++i)
    if (!check_entry(i)) return false;
  return true;
}

}  // namespace weightmap::catalog
