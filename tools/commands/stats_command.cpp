#include <memory>
#include <set>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/number_text.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_selection.hpp"

namespace weightmap::cli {
namespace {

struct StatsOptions : CommonOptions {
  std::vector<std::string> patterns;
  TableStyle style;
};

// A tensor without statistics, such as a quantized one, does not prevent the others.
struct Row {
  NamedTensor tensor;
  Result<TensorStatistics> found;
};

Json describe_row(const Checkpoint& checkpoint, const Row& row) {
  Json document = {{"name", row.tensor.name},
                   {"dtype", to_string(row.tensor.view.dtype())},
                   {"shape", describe(checkpoint, row.tensor)["shape"]}};
  if (!row.found) {
    document["error"] = describe(row.found.error());
    return document;
  }
  document["count"] = row.found->count;
  document["min"] = number_json(row.found->min);
  document["max"] = number_json(row.found->max);
  document["mean"] = number_json(row.found->mean);
  document["std"] = number_json(row.found->std);
  document["nan"] = row.found->nan;
  document["infinite"] = row.found->infinite;
  document["zeros"] = row.found->zeros;
  return document;
}

std::vector<std::string> cells_of(const Row& row) {
  std::vector<std::string> cells = {printable(row.tensor.name),
                                    std::string(to_string(row.tensor.view.dtype()))};
  if (!row.found) {
    cells.resize(10, "-");
    return cells;
  }
  const TensorStatistics& found = *row.found;
  for (std::string cell :
       {std::to_string(found.count), number_text(found.min), number_text(found.max),
        number_text(found.mean), number_text(found.std), std::to_string(found.nan),
        std::to_string(found.infinite), std::to_string(found.zeros)})
    cells.push_back(std::move(cell));
  return cells;
}

// Why there are rows of dashes, each reason once.
void print_reasons(Output& out, const std::vector<Row>& rows) {
  std::set<std::string> said;
  for (const Row& row : rows)
    if (!row.found && said.insert(row.found.error().message).second)
      out.write(printable(row.found.error().message) + "\n");
}

void print_rows(Output& out, const Checkpoint& checkpoint, const StatsOptions& options,
                const std::vector<Row>& rows) {
  if (options.json) {
    Json tensors = Json::array();
    for (const Row& row : rows) tensors.push_back(describe_row(checkpoint, row));
    out.write(to_text({{"file", options.file}, {"tensors", tensors}}) + "\n");
    return;
  }
  const std::vector<Column> columns = {{"TENSOR", Column::left}, {"DTYPE", Column::left},
                                       {"COUNT", Column::right}, {"MIN", Column::right},
                                       {"MAX", Column::right},   {"MEAN", Column::right},
                                       {"STD", Column::right},   {"NAN", Column::right},
                                       {"INF", Column::right},   {"ZEROS", Column::right}};
  print_columns(out, options.style, columns, rows.size(),
                [&](std::size_t i) { return cells_of(rows[i]); });
  if (!options.style.tsv) print_reasons(out, rows);
}

Result<int> run_stats(Output& out, const StatsOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(options));
  TRY_ASSIGN(const std::vector<std::size_t> chosen,
             about(options, select(checkpoint, {options.patterns, {}, {}})));
  std::uint64_t all = 0;
  for (const std::size_t index : chosen) all += checkpoint.tensors()[index].view.nbytes();
  std::vector<Row> rows;
  {
    ProgressBar bar;
    std::uint64_t before = 0;
    for (const std::size_t index : chosen) {
      const NamedTensor tensor = checkpoint.tensors()[index];
      rows.push_back({tensor, statistics(tensor.view, [&](std::uint64_t done, std::uint64_t) {
                        bar.update(before + done, all);
                        return true;
                      })});
      before += tensor.view.nbytes();
    }
  }
  print_rows(out, checkpoint, options, rows);
  return exit_good;
}

}  // namespace

void add_stats(CLI::App& app, Run& run) {
  auto options = std::make_shared<StatsOptions>();
  CLI::App& command = *app.add_subcommand(
      "stats", "Show range, mean and spread of the numbers, NaN and infinities");
  add_common_options(command, *options);
  command.add_option("PATTERN", options->patterns, "Only names that match, e.g. 'layers.0.*'")
      ->type_name("");
  add_table_options(command, options->style);
  add_verify_option(command, *options);
  command.footer(
      "Minimum, maximum, mean and standard deviation (divided by the number of elements) are of\n"
      "the finite elements. Complex, quantized and packed tensors have none.\n"
      "Examples:\n"
      "  weightmap stats model.pt\n"
      "  weightmap stats model.pt '*.wq.weight' --json | jq '.tensors[] | select(.nan > 0)'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_stats(out, *options); }; });
}

}  // namespace weightmap::cli
