#include "runtime/base/zip/plan.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/zip/name_index.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

constexpr std::uint64_t deflated_version = 20;
constexpr std::uint64_t end64_made_by = 0x031E;
constexpr std::uint64_t end64_version = 45;

std::uint64_t flags_of(const EmittedRecord& record) noexcept {
  return record.size > 0 ? flag_descriptor | flag_utf8 : flag_utf8;
}

std::uint64_t version_of(const EmittedRecord& record) noexcept {
  return record.method == Method::deflated ? deflated_version : 0;
}

std::uint64_t clamp32(std::uint64_t value) noexcept {
  return std::min<std::uint64_t>(value, in_zip64_32);
}

// The local header's stored size is not known yet; like miniz, this writes 0.
void emit_zip64_field(bytes::ByteSink& sink, const EmittedRecord& record,
                      std::uint64_t stored_size) {
  const std::uint64_t length = Layout::zip64_field_bytes(record.size, record.header_offset);
  if (length == 0) return;
  sink.u16(zip64_extra_id);
  sink.u16(length - 4);
  if (record.size >= Layout::zip64_threshold) {
    sink.u64(record.size);
    sink.u64(stored_size);
  }
  if (record.header_offset >= Layout::zip64_threshold) sink.u64(record.header_offset);
}

constexpr std::size_t longest_name = 0xFFFF;

// Returns the number in a storage's name, "data/17"; bytes::no_number for other names.
std::uint32_t storage_number(std::string_view name) noexcept {
  constexpr std::string_view folder = StorageNumbers::folder;
  return name.starts_with(folder) ? bytes::decimal(name.substr(folder.size())) : bytes::no_number;
}

// True if unpacking the name below a folder creates a file inside it.
bool is_relative_path(std::string_view name) {
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == name.npos) return true;
    name.remove_prefix(slash + 1);
  }
}

// Returns the fault of a name, or nullptr.
const char* fault_of(std::string_view name) {
  if (name.empty()) return "is empty";
  if (!bytes::is_utf8(name)) return "is not UTF-8";
  if (name.find_first_of(std::string_view("\0\\", 2)) != name.npos)
    return "has a NUL or a backslash in it";
  if (!is_relative_path(name)) return "is not a relative path";
  return nullptr;
}

tl::unexpected<Error> bad_name(std::string_view what, std::string_view name,
                               std::string_view fault) {
  return failure(ErrorCode::invalid_argument,
                 std::string(what) + " " + bytes::quote(name) + " " + std::string(fault));
}

}  // namespace

void emit_local_header(bytes::ByteSink& sink, const Layout& layout, const EmittedRecord& record) {
  const std::uint64_t zip64 = Layout::zip64_field_bytes(record.size, record.header_offset);
  const std::uint64_t payload =
      layout.payload_offset(record.header_offset, record.name.size(), record.size).value();
  const std::uint64_t padding = payload - record.header_offset - local_header_bytes -
                                record.name.size() - zip64 - Layout::padding_field_bytes;
  sink.u32(local_header_signature);
  sink.u16(version_of(record));
  sink.u16(flags_of(record));
  sink.u16(static_cast<std::uint64_t>(record.method));
  sink.fill(4 + 4 + 4 + 4, '\0');  // time and date, CRC, both sizes: they are in the descriptor
  sink.u16(record.name.size());
  sink.u16(zip64 + Layout::padding_field_bytes + padding);
  sink.text(record.name);
  emit_zip64_field(sink, record, 0);
  sink.text("FB");
  sink.u16(padding);
  sink.fill(padding, 'Z');
}

void emit_descriptor(bytes::ByteSink& sink, const EmittedRecord& record) {
  if (record.size == 0) return;
  sink.u32(descriptor_signature);
  sink.u32(record.crc32);
  if (Layout::needs_zip64(record.size, record.header_offset)) {
    sink.u64(record.stored_size);
    sink.u64(record.size);
  } else {
    sink.u32(record.stored_size);
    sink.u32(record.size);
  }
}

void emit_central_entry(bytes::ByteSink& sink, const EmittedRecord& record) {
  sink.u32(central_signature);
  sink.u16(0);  // version made by
  sink.u16(version_of(record));
  sink.u16(flags_of(record));
  sink.u16(static_cast<std::uint64_t>(record.method));
  sink.u32(0);  // time and date
  sink.u32(record.crc32);
  sink.u32(clamp32(record.stored_size));
  sink.u32(clamp32(record.size));
  sink.u16(record.name.size());
  sink.u16(Layout::zip64_field_bytes(record.size, record.header_offset));
  sink.fill(2 + 2 + 2 + 4, '\0');  // comment length, disk, both attributes
  sink.u32(clamp32(record.header_offset));
  sink.text(record.name);
  emit_zip64_field(sink, record, record.stored_size);
}

void emit_end(bytes::ByteSink& sink, std::uint64_t directory_offset, std::uint64_t directory_size,
              std::uint64_t record_count) {
  sink.u32(end64_signature);
  sink.u64(end64_bytes - 12);
  sink.u16(end64_made_by);
  sink.u16(end64_version);
  sink.u32(0);  // disks
  sink.u32(0);
  for (std::uint64_t value : {record_count, record_count, directory_size, directory_offset})
    sink.u64(value);
  sink.u32(locator_signature);
  sink.u32(0);
  sink.u64(directory_offset + directory_size);
  sink.u32(1);  // disks in all
  sink.u32(end_signature);
  sink.u32(0);
  const std::uint64_t count16 = std::min<std::uint64_t>(record_count, in_zip64_16);
  sink.u16(count16);
  sink.u16(count16);
  sink.u32(clamp32(directory_size));
  sink.u32(clamp32(directory_offset));
  sink.u16(0);  // comment
}

Result<Plan> Plan::make(std::string_view top_folder, std::uint64_t alignment) {
  if (const char* fault = fault_of(top_folder))
    return bad_name("the archive's name", top_folder, fault);
  if (top_folder.find('/') != top_folder.npos)
    return bad_name("the archive's name", top_folder, "has a slash in it");
  if (alignment == 0 || alignment > max_alignment)
    return failure(ErrorCode::invalid_argument,
                   "an alignment of " + std::to_string(alignment) +
                       " cannot be expressed: the padding of a record can make it 1 to " +
                       std::to_string(max_alignment) + " bytes");
  Plan plan;
  plan.layout_.alignment = alignment;
  plan.text_.append(top_folder).append("/");
  plan.top_length_ = top_folder.size();
  return plan;
}

void Plan::reserve(std::size_t count, std::size_t name_bytes) {
  records_.reserve(count);
  text_.reserve(text_.size() + count * (top_length_ + 1 + name_bytes));
}

Result<std::size_t> Plan::add(std::string_view name, std::uint64_t size, std::uint64_t stored_size,
                              Method method) {
  const std::uint32_t number = storage_number(name);
  const char* const fault = number == bytes::no_number ? fault_of(name) : nullptr;
  if (fault != nullptr) return bad_name("the record's name", name, fault);
  const std::size_t full_length = top_length_ + 1 + name.size();
  if (full_length > longest_name)
    return bad_name("the record's name", name,
                    "is longer than the " + std::to_string(longest_name) +
                        " bytes that a zip archive has for it");
  Planned made{
      end_, 0, size, stored_size, text_.size(), 0, static_cast<std::uint16_t>(full_length), method};
  const auto payload = layout_.payload_offset(end_, full_length, size);
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t end =
      payload ? Layout::record_end(end_, *payload, stored_size, size).value_or(none) : none;
  const std::uint64_t directory =
      directory_bytes_ + central_entry_bytes + full_length + Layout::zip64_field_bytes(size, end_);
  if (end > static_cast<std::uint64_t>(INT64_MAX) - in_zip64_32 - tail_bytes)
    return failure(ErrorCode::limit_exceeded, "the record " + bytes::quote(name) + " of " +
                                                  std::to_string(size) +
                                                  " bytes makes the archive larger than a file");
  if (directory >= in_zip64_32)
    return failure(ErrorCode::limit_exceeded, "the archive's directory would be larger than 4 GiB");
  if (!add_name(name, number)) return bad_name("the record", name, "is in the archive already");
  made.payload_offset = *payload;
  text_.append(text_.data(), top_length_ + 1).append(name);
  records_.push_back(made);
  end_ = end;
  directory_bytes_ = directory;
  return records_.size() - 1;
}

std::string_view Plan::name(std::size_t index) const noexcept {
  return emitted(records_[index]).name.substr(top_length_ + 1);
}

bool Plan::has(std::string_view name) const {
  const std::string small = in_lower_case(name);
  return storage_number(small) < storages_ || folded_names_.contains(small);
}

// Storages nearly always come in the order of their numbers, which needs no lookup.
bool Plan::add_name(std::string_view name, std::uint32_t number) {
  if (number == storages_ && !has_storage_among_names_) {
    ++storages_;
    return true;
  }
  if (has(name)) return false;
  const auto added = folded_names_.insert(in_lower_case(name)).first;
  has_storage_among_names_ |= storage_number(*added) != bytes::no_number;
  return true;
}

EmittedRecord Plan::emitted(const Planned& record) const noexcept {
  return {std::string_view(text_).substr(record.name_at, record.name_length),
          record.header_offset,
          record.size,
          record.stored_size,
          record.crc32,
          record.method};
}

void Plan::emit_local_header(bytes::ByteSink& sink, std::size_t index) const {
  zip::emit_local_header(sink, layout_, emitted(records_[index]));
}

void Plan::emit_descriptor(bytes::ByteSink& sink, std::size_t index) const {
  zip::emit_descriptor(sink, emitted(records_[index]));
}

void Plan::emit_directory(bytes::ByteSink& sink) const {
  for (const Planned& record : records_) emit_central_entry(sink, emitted(record));
  emit_end(sink, end_, directory_bytes_, records_.size());
}

}  // namespace weightmap::zip
