// Lists all records of an archive, for `ls --records`.
#pragma once

#include <string>

#include "tools/support/columns.hpp"
#include "tools/support/output.hpp"
#include "weightmap/archive.hpp"

namespace weightmap::cli {

void print_records(Output& out, const ArchiveReader& archive, const TableStyle& style);
void print_records_json(Output& out, const ArchiveReader& archive, const std::string& file);

}  // namespace weightmap::cli
