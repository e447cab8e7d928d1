#include "tools/ls/record_table.hpp"

#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {

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
