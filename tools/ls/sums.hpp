// Adds up the sizes of tensors by the beginnings of their names, for `ls --sum`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/options/sort_option.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct SumOptions {
  std::string file;
  std::optional<std::size_t> depth;  // parts of a name that a group shares
  SortBy sort = SortBy::file;
  TableStyle style;
  bool json = false;
};

// `indices` are positions in Checkpoint::tensors(), in the order in which groups are listed.
void print_sums(Output& out, const Checkpoint& checkpoint, const std::vector<std::size_t>& indices,
                const SumOptions& options);

}  // namespace weightmap::cli
