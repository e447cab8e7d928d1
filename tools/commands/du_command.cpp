#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/sort_option.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_groups.hpp"
#include "tools/tensors/tensor_selection.hpp"

namespace weightmap::cli {
namespace {

struct DuOptions : CommonOptions {
  TensorSelection selection;
  TableStyle style;
  SortBy sort = SortBy::file;
  std::optional<std::size_t> depth;
};

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

void print_json(Output& out, const DuOptions& options, const std::vector<TensorGroup>& groups) {
  Json list = Json::array();
  for (const TensorGroup& group : groups) {
    list.push_back({{"name", group.name}});
    list.back().update(figures(group));
  }
  out.write(to_text({{"file", options.file}, {"groups", list}, {"all", figures(sum(groups))}}) +
            "\n");
}

void print_table(Output& out, const DuOptions& options, const std::vector<TensorGroup>& groups) {
  const std::vector<Column> columns = {{"SIZE", Column::right},
                                       {"ELEMENTS", Column::right},
                                       {"TENSORS", Column::right},
                                       {"GROUP", Column::left}};
  if (!groups.empty() || options.style.tsv)
    print_columns(out, options.style, columns, groups.size(), [&](std::size_t i) {
      const TensorGroup& group = groups[i];
      return std::vector<std::string>{options.style.bytes(group.bytes),
                                      std::to_string(group.elements), std::to_string(group.tensors),
                                      printable(group.name)};
    });
  if (options.style.tsv) return;
  const TensorGroup all = sum(groups);
  out.write(count(all.tensors, "tensor") + " of " + count(all.elements, "element") + ", " +
            options.style.bytes(all.bytes) + (options.style.exact_bytes ? " bytes\n" : "\n"));
}

Result<int> run_du(Output& out, const DuOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, open_to_look(options));
  TRY_ASSIGN(const std::vector<std::size_t> indices,
             about(options, select(checkpoint, options.selection)));
  const Grouping grouping =
      options.depth ? Grouping{*options.depth} : Grouping::by_size(checkpoint, indices);
  std::vector<TensorGroup> groups = group_tensors(checkpoint, indices, grouping);
  sort(
      groups, options.sort, [](const TensorGroup& group) { return std::string_view(group.name); },
      [](const TensorGroup& group) { return group.bytes; });
  options.json ? print_json(out, options, groups) : print_table(out, options, groups);
  return exit_good;
}

}  // namespace

void add_du(CLI::App& app, Run& run) {
  auto options = std::make_shared<DuOptions>();
  CLI::App& command = *app.add_subcommand("du", "Add up sizes by the beginning of the names");
  add_common_options(command, *options);
  command
      .add_option("PATTERN", options->selection.patterns,
                  "Only names that match, e.g. 'layers.0.*'")
      ->type_name("");
  command
      .add_option("-d,--depth", options->depth,
                  "A line for all tensors that share the first N parts of their names; without\n"
                  "it, as many parts as give at most 40 lines")
      ->type_name("N")
      ->check(CLI::Range(1, 65535));
  add_sort_option(command, options->sort);
  add_table_options(command, options->style);
  add_verify_option(command, *options);
  add_remote_options(command, options->remote);
  command.footer(
      "Tied tensors, which are the same elements, count once, where the first of them stands.\n"
      "Examples:\n"
      "  weightmap du model.pt\n"
      "  weightmap du --depth 1 --sort size train.pt\n"
      "  weightmap du --tsv model.pt 'model.layers.*' | sort -n");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_du(out, *options); }; });
}

}  // namespace weightmap::cli
