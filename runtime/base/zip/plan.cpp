#include "runtime/base/zip/plan.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/storage_numbers.hpp"

namespace weightmap::zip {
namespace {

constexpr std::size_t longest_name = 0xFFFF;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::optional<bytes::CodePoint> next = bytes::first_code_point(text);
    if (!next || (next->code >= 0xD800 && next->code <= 0xDFFF)) return false;
    text.remove_prefix(next->length);
  }
  return true;
}

std::string folded(std::string_view name) {
  std::string small(name);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

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
  if (!is_utf8(name)) return "is not UTF-8";
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
  const auto end = payload ? Layout::record_end(end_, *payload, stored_size, size) : std::nullopt;
  const std::uint64_t directory =
      directory_bytes_ + central_entry_bytes + full_length + Layout::zip64_field_bytes(size, end_);
  if (!end || *end > static_cast<std::uint64_t>(INT64_MAX) - in_zip64_32 - tail_bytes)
    return failure(ErrorCode::limit_exceeded, "the record " + bytes::quote(name) + " of " +
                                                  std::to_string(size) +
                                                  " bytes makes the archive larger than a file");
  if (directory >= in_zip64_32)
    return failure(ErrorCode::limit_exceeded, "the archive's directory would be larger than 4 GiB");
  if (!add_name(name, number)) return bad_name("the record", name, "is in the archive already");
  made.payload_offset = *payload;
  text_.append(text_.data(), top_length_ + 1).append(name);
  records_.push_back(made);
  end_ = *end;
  directory_bytes_ = directory;
  return records_.size() - 1;
}

std::string_view Plan::name(std::size_t index) const noexcept {
  return emitted(records_[index]).name.substr(top_length_ + 1);
}

bool Plan::has(std::string_view name) const {
  const std::string small = folded(name);
  return storage_number(small) < storages_ || folded_names_.contains(small);
}

// Storages nearly always come in the order of their numbers, which needs no lookup.
bool Plan::add_name(std::string_view name, std::uint32_t number) {
  if (number == storages_ && !has_storage_among_names_) {
    ++storages_;
    return true;
  }
  if (has(name)) return false;
  const auto added = folded_names_.insert(folded(name)).first;
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
