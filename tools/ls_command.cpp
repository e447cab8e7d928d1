#include <algorithm>
#include <memory>
#include <vector>

#include "tools/command.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/name_pattern.hpp"

namespace weightmap::cli {
namespace {

struct LsOptions : CommonOptions {
  std::string pattern;
  bool long_form = false;
};

// Indices of the tensors whose name matches the pattern; all of them without one.
std::vector<std::size_t> selected(const Checkpoint& checkpoint, const LsOptions& options) {
  const NamePattern pattern(options.pattern);
  std::vector<std::size_t> indices;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (options.pattern.empty() || pattern.matches(tensor.name)) indices.push_back(tensor.index);
  }
  return indices;
}

// One tensor a line, written as it comes: a document of a hundred thousand tensors needs no memory.
void print_json(Output& out, const Checkpoint& checkpoint, const LsOptions& options,
                const std::vector<std::size_t>& indices) {
  out.write("{\"file\":" + to_text(Json(options.file)) + ",\"tensors\":[");
  const char* separator = "\n";
  for (std::size_t index : indices) {
    if (out.failed()) return;
    out.write(separator + to_text(describe(checkpoint, checkpoint.tensors()[index])));
    separator = ",\n";
  }
  out.write("\n]}\n");
}

// What reading the elements still has to do to them.
std::string lazy_text(const TensorView& view) {
  if (view.is_conjugate()) return view.is_negative() ? "conjugate, negative" : "conjugate";
  return view.is_negative() ? "negative" : "";
}

std::vector<std::string> row(const NamedTensor& tensor, bool long_form, bool has_lazy) {
  const TensorView& view = tensor.view;
  std::vector<std::string> cells = {printable(tensor.name), std::string(to_string(view.dtype())),
                                    dims(view.shape()), human_bytes(view.nbytes())};
  if (long_form)
    cells.insert(cells.end(),
                 {dims(view.strides()), printable(tensor.storage),
                  std::to_string(tensor.storage_offset), std::to_string(tensor.file_offset)});
  if (has_lazy) cells.push_back(lazy_text(view).empty() ? "-" : lazy_text(view));
  return cells;
}

std::string summary(const Checkpoint& checkpoint, const std::vector<std::size_t>& indices) {
  std::uint64_t bytes = 0;
  for (std::size_t index : indices) bytes += checkpoint.tensors()[index].view.nbytes();
  const std::size_t all = checkpoint.tensors().size();
  const std::string what =
      indices.size() == all
          ? count(all, "tensor") + ", " + count(checkpoint.storage_count(), "storage")
          : std::to_string(indices.size()) + " of " + count(all, "tensor");
  return what + ", " + human_bytes(bytes) + "\n";
}

void print_table(Output& out, const Checkpoint& checkpoint, const LsOptions& options,
                 const std::vector<std::size_t>& indices) {
  std::vector<Column> columns = {{"NAME", Column::left},
                                 {"DTYPE", Column::left},
                                 {"SHAPE", Column::left},
                                 {"SIZE", Column::right}};
  if (options.long_form)
    columns.insert(columns.end(), {{"STRIDES", Column::left},
                                   {"STORAGE", Column::right},
                                   {"OFFSET", Column::right},
                                   {"FILE OFFSET", Column::right}});
  const bool has_lazy =
      options.long_form && std::any_of(indices.begin(), indices.end(), [&](std::size_t index) {
        return !lazy_text(checkpoint.tensors()[index].view).empty();
      });
  if (has_lazy) columns.push_back({"LAZY", Column::left});
  if (!indices.empty())
    print_columns(out, columns, indices.size(), [&](std::size_t i) {
      return row(checkpoint.tensors()[indices[i]], options.long_form, has_lazy);
    });
  out.write(summary(checkpoint, indices));
}

Result<int> run_ls(Output& out, const LsOptions& options) {
  Result<Checkpoint> checkpoint = open_checkpoint(options);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const std::vector<std::size_t> indices = selected(*checkpoint, options);
  if (options.json)
    print_json(out, *checkpoint, options, indices);
  else
    print_table(out, *checkpoint, options, indices);
  return exit_good;
}

}  // namespace

void add_ls(CLI::App& app, Run& run) {
  auto options = std::make_shared<LsOptions>();
  CLI::App& command = *app.add_subcommand("ls", "List the tensors");
  add_common_options(command, *options);
  command.add_option("PATTERN", options->pattern, "Only names that match, e.g. '*.wq.weight'")
      ->type_name("");
  command.add_flag("-l,--long", options->long_form, "Add strides, storage and offsets");
  add_verify_option(command, *options);
  command.footer(
      "Examples:\n"
      "  weightmap ls model.pt\n"
      "  weightmap ls --long model.pt 'layers.0.*'\n"
      "  weightmap ls --json model.pt | jq -r '.tensors[].name'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_ls(out, *options); }; });
}

}  // namespace weightmap::cli
