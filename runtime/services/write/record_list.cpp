#include "runtime/services/write/record_list.hpp"

#include <bit>
#include <string>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/services/archive/own_records.hpp"

namespace weightmap {
namespace {

// How many zeros a record of that name must hold so that, behind it, the payload of a record lies
// at a multiple of the alignment: where the header just leaves no padding to do. The archive is far
// from 2^64 bytes, which its plan has made sure of.
std::uint64_t filler_bytes(const zip::Layout& layout, std::uint64_t at, std::uint64_t filler_length,
                           std::uint64_t name_length, std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t fixed =
      zip::local_header_bytes + name_length + zip::Layout::padding_field_bytes;
  const std::uint64_t filler = layout.payload_offset(at, filler_length, 1).value();
  for (std::uint64_t target = bytes::round_up(filler + fixed, alignment);; target += alignment) {
    std::uint64_t header = target - fixed;
    header -= zip::Layout::zip64_field_bytes(size, header);
    const std::uint64_t descriptor = zip::Layout::footer_bytes(1, at);
    const bool fits =
        header > filler + descriptor && layout.payload_offset(header, name_length, size) == target;
    if (fits) return header - descriptor - filler;
  }
}

}  // namespace

Result<RecordList> RecordList::make(std::string_view archive_name, std::uint64_t alignment) {
  if (!pads_only(alignment) && !std::has_single_bit(alignment))
    return failure(ErrorCode::invalid_argument,
                   "an alignment of " + std::to_string(alignment) + " cannot be had: beyond " +
                       std::to_string(zip::Plan::max_alignment) + " it must be a power of two");
  const std::uint64_t padding = pads_only(alignment) ? alignment : zip::Layout::default_alignment;
  TRY_ASSIGN(zip::Plan plan, zip::Plan::make(archive_name, padding));
  return RecordList(std::move(plan), alignment);
}

void RecordList::reserve(std::size_t count, std::size_t name_bytes) {
  plan_.reserve(count, name_bytes);
  contents_.reserve(count);
}

Result<std::uint64_t> RecordList::add(std::string_view name, const RecordContent& content) {
  TRY_ASSIGN(const std::size_t index, plan_.add(name, content.size()));
  contents_.push_back(&content);
  return plan_.records()[index].payload_offset;
}

Result<std::uint64_t> RecordList::add_storage(std::string_view name, const RecordContent& content) {
  if (pads_only(alignment_) || content.size() < alignment_) return add(name, content);
  const zip::Layout layout{plan_.alignment()};
  const std::uint64_t top = plan_.top_folder().size() + 1;
  const auto place = layout.payload_offset(plan_.end(), top + name.size(), content.size());
  if (place && *place % alignment_ != 0) {
    const std::string filler = std::string(filler_name) + std::to_string(fillers_.size());
    const std::uint64_t bytes = filler_bytes(layout, plan_.end(), top + filler.size(),
                                             top + name.size(), content.size(), alignment_);
    TRY(add(filler, fillers_.emplace_back(RecordContent::zeros(bytes))));
  }
  return add(name, content);
}

Result<std::uint64_t> RecordList::close(std::uint64_t version) {
  TRY(plan_.add(version_name(version), version_text(version).size()));
  if (!plan_.has("byteorder")) TRY(plan_.add("byteorder", native_byte_order.size()));
  TRY(plan_.add(SerializationId::record, SerializationId::digit_count));
  return plan_.archive_bytes();
}

Result<void> RecordList::write(ArchiveWriter& archive) const {
  for (std::size_t i = 0; i < contents_.size(); ++i)
    TRY(archive.write(plan_.name(i), *contents_[i]));
  return {};
}

}  // namespace weightmap
