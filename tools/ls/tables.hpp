// Tables of `ls`: tensors that are more than one dense block, and all records of an archive.
#pragma once

#include <span>
#include <string>

#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap::cli {

// Returns a line for each: name, form, dtype, shape, and further facts.
std::string composed_table(std::span<const ComposedTensor> composed);
// Returns "2 quantized, 1 sparse_coo"; empty if there are none.
std::string composed_summary(std::span<const ComposedTensor> composed);
Json describe(const ComposedTensor& composed);

// For `ls --records`.
void print_records(Output& out, const ArchiveReader& archive, const TableStyle& style);
void print_records_json(Output& out, const ArchiveReader& archive, const std::string& file);

}  // namespace weightmap::cli
