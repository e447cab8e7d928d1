#include "tools/ls/sums.hpp"

#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_groups.hpp"

namespace weightmap::cli {
namespace {

TensorGroup sum(const std::vector<TensorGroup>& groups) {
  TensorGroup all;
  for (const TensorGroup& group : groups) {
    all.tensors += group.tensors;
    all.elements += group.elements;
    all.bytes += group.bytes;
  }
  return all;
}

Json figures(const TensorGroup& group) {
  return {{"tensors", group.tensors}, {"elements", group.elements}, {"bytes", group.bytes}};
}

void print_json(Output& out, const std::string& file, const std::vector<TensorGroup>& groups) {
  Json list = Json::array();
  for (const TensorGroup& group : groups) {
    list.push_back({{"name", group.name}});
    list.back().update(figures(group));
  }
  out.write(to_text({{"file", file}, {"groups", list}, {"all", figures(sum(groups))}}) + "\n");
}

void print_table(Output& out, const TableStyle& style, const std::vector<TensorGroup>& groups) {
  const std::vector<Column> columns = {{"SIZE", Column::right},
                                       {"ELEMENTS", Column::right},
                                       {"TENSORS", Column::right},
                                       {"GROUP", Column::left}};
  if (!groups.empty() || style.tsv)
    print_columns(out, style, columns, groups.size(), [&](std::size_t i) {
      const TensorGroup& group = groups[i];
      return std::vector<std::string>{style.bytes(group.bytes), std::to_string(group.elements),
                                      std::to_string(group.tensors), printable(group.name)};
    });
  if (style.tsv) return;
  const TensorGroup all = sum(groups);
  out.write(count(all.tensors, "tensor") + " of " + count(all.elements, "element") + ", " +
            style.bytes(all.bytes) + (style.exact_bytes ? " bytes\n" : "\n"));
}

}  // namespace

void print_sums(Output& out, const Checkpoint& checkpoint, const std::vector<std::size_t>& indices,
                const SumOptions& options) {
  const Grouping grouping =
      options.depth ? Grouping{*options.depth} : Grouping::by_size(checkpoint, indices);
  std::vector<TensorGroup> groups = group_tensors(checkpoint, indices, grouping);
  sort(
      groups, options.sort, [](const TensorGroup& group) { return std::string_view(group.name); },
      [](const TensorGroup& group) { return group.bytes; });
  options.json ? print_json(out, options.file, groups) : print_table(out, options.style, groups);
}

}  // namespace weightmap::cli
