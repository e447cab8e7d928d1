#include "tools/ls/tables.hpp"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using Form = ComposedTensor::Form;

std::string details(const ComposedTensor& composed) {
  switch (composed.form) {
    case Form::quantized:
      return fmt::format("scale {}, zero point {}", composed.scale, composed.zero_point);
    case Form::per_channel:
      return fmt::format("axis {}", composed.axis);
    case Form::sparse_coo:
      if (!composed.is_coalesced) return "";
      return *composed.is_coalesced ? "coalesced" : "not coalesced";
    case Form::subclass:
      return composed.type;
    case Form::from_array:
      return "device " + composed.device;
    default:
      return "";
  }
}

// Returns its parts by their numbers in the list.
std::string parts(const ComposedTensor& composed) {
  if (composed.part_count == 0) return "-";
  if (composed.part_count == 1) return std::to_string(composed.first_part);
  return std::to_string(composed.first_part) + " to " +
         std::to_string(composed.first_part + composed.part_count - 1);
}

}  // namespace

std::string composed_table(std::span<const ComposedTensor> composed) {
  std::vector<std::vector<std::string>> rows;
  for (const ComposedTensor& each : composed)
    rows.push_back({printable(each.name), std::string(to_string(each.form)),
                    each.dtype ? std::string(to_string(*each.dtype)) : "-",
                    each.form == Form::nested ? "-" : dims(each.sizes), parts(each),
                    details(each)});
  return to_columns({{"COMPOSED TENSOR"},
                     {"FORM"},
                     {"DTYPE"},
                     {"SHAPE"},
                     {"TENSORS", Column::right},
                     {"DETAILS"}},
                    rows);
}

std::string composed_summary(std::span<const ComposedTensor> composed) {
  std::map<Form, std::size_t> counts;
  for (const ComposedTensor& each : composed) ++counts[each.form];
  std::string text;
  for (const auto& [form, number] : counts)
    text +=
        (text.empty() ? "" : ", ") + std::to_string(number) + " " + std::string(to_string(form));
  return text;
}

Json describe(const ComposedTensor& composed) {
  Json json = {{"name", composed.name},
               {"form", to_string(composed.form)},
               {"dtype", composed.dtype ? Json(to_string(*composed.dtype)) : Json(nullptr)},
               {"shape", composed.sizes},
               {"requires_grad", composed.requires_grad},
               {"tensors", {{"first", composed.first_part}, {"count", composed.part_count}}}};
  switch (composed.form) {
    case Form::quantized:
      json["scale"] = composed.scale;
      json["zero_point"] = composed.zero_point;
      break;
    case Form::per_channel:
      json["axis"] = composed.axis;
      break;
    case Form::sparse_coo:
      json["coalesced"] = composed.is_coalesced ? Json(*composed.is_coalesced) : Json(nullptr);
      break;
    case Form::subclass:
      json["type"] = composed.type;
      json["device"] = composed.device;
      break;
    case Form::from_array:
      json["device"] = composed.device;
      break;
    default:
      break;
  }
  return json;
}

void print_records(Output& out, const ArchiveReader& archive, const TableStyle& style) {
  const std::size_t number = archive.record_count();
  print_columns(out, style,
                {{"RECORD"},
                 {"SIZE", Column::right},
                 {"STORED", Column::right},
                 {"METHOD"},
                 {"CRC-32", Column::right},
                 {"HEADER OFFSET", Column::right}},
                number, [&](std::size_t i) -> std::vector<std::string> {
                  const ArchiveReader::RecordInfo record = archive.record(i);
                  return {printable(record.name),           style.bytes(record.size),
                          style.bytes(record.stored_bytes), record.deflated ? "deflated" : "stored",
                          std::to_string(record.crc32),     std::to_string(record.header_offset)};
                });
  if (!style.tsv)
    out.write(count(number, "record") + " in " + printable(archive.archive_name()) + "/\n");
}

void print_records_json(Output& out, const ArchiveReader& archive, const std::string& file) {
  Json records = Json::array();
  for (const ArchiveReader::RecordInfo& record : archive.records())
    records.push_back({{"name", record.name},
                       {"size", record.size},
                       {"stored_bytes", record.stored_bytes},
                       {"deflated", record.deflated},
                       {"crc32", record.crc32},
                       {"header_offset", record.header_offset}});
  out.write(to_text({{"file", file}, {"archive", archive.archive_name()}, {"records", records}}) +
            "\n");
}

}  // namespace weightmap::cli
