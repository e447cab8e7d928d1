// The files of a model, local or remote, for `ls --files`.
#pragma once

#include <string>
#include <vector>

#include "tools/support/columns.hpp"
#include "tools/support/output.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::cli {

void print_model_files(Output& out, const std::vector<ModelFile>& files, const TableStyle& style);
void print_model_files_json(Output& out, const std::vector<ModelFile>& files,
                            const std::string& model);

}  // namespace weightmap::cli
