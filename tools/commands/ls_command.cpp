#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/ls/description.hpp"
#include "tools/ls/model_files.hpp"
#include "tools/ls/sums.hpp"
#include "tools/ls/tables.hpp"
#include "tools/options/sort_option.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_selection.hpp"
#include "tools/values/value_tree.hpp"
#include "weightmap/backing.hpp"

namespace weightmap::cli {
namespace {

struct LsOptions : CommonOptions {
  TensorSelection selection;
  TableStyle style;
  SortBy sort = SortBy::file;
  std::optional<std::size_t> depth;
  bool long_form = false;
  bool info = false;
  bool records = false;
  bool sums = false;
  bool files = false;
};

Result<std::vector<std::size_t>> listed(const Checkpoint& checkpoint, const LsOptions& options) {
  Result<std::vector<std::size_t>> indices = select(checkpoint, options.selection);
  if (!indices) return indices;
  std::sort(indices->begin(), indices->end());
  sort(
      *indices, options.sort, [&](std::size_t i) { return checkpoint.tensors()[i].name; },
      [&](std::size_t i) { return checkpoint.tensors()[i].view.nbytes(); });
  return indices;
}

// Writes one tensor per line immediately, so that a large document needs no memory.
void print_json(Output& out, const Checkpoint& checkpoint, const LsOptions& options,
                const std::vector<std::size_t>& indices, std::span<const ComposedTensor> composed) {
  out.write("{\"file\":" + to_text(Json(options.file)) + ",\"tensors\":[");
  const char* separator = "\n";
  for (std::size_t index : indices) {
    if (out.failed()) return;
    out.write(separator + to_text(describe(checkpoint, checkpoint.tensors()[index])));
    separator = ",\n";
  }
  out.write("\n]");
  if (!composed.empty()) {
    Json described = Json::array();
    for (const ComposedTensor& each : composed) described.push_back(describe(each));
    out.write(",\"composed\":" + to_text(described));
  }
  if (const auto& unlisted = checkpoint.info().unsupported; !unlisted.empty())
    out.write(",\"unsupported\":" + to_text(Json(unlisted)));
  out.write("}\n");
}

// Returns the lazy operations of a tensor.
std::string lazy_text(const TensorView& view) {
  if (view.is_conjugate()) return view.is_negative() ? "conjugate, negative" : "conjugate";
  return view.is_negative() ? "negative" : "";
}

// Returns "model-00002-of-00004.safetensors".
std::string file_name(const NamedTensor& tensor) {
  return std::string(tensor.file.substr(tensor.file.rfind('/') + 1));
}

// Columns that only some files need.
struct Extras {
  bool lazy = false;
  bool copied = false;
  bool is_pickle = false;
  bool file = false;                          // for a checkpoint of several files
  const ReservedStorages* filling = nullptr;  // for an unsealed file
};

// Returns the reason why a tensor is not mapped unchanged.
std::string copy_text(const NamedTensor& tensor, const Extras& extras) {
  if (tensor.is_copied) return extras.is_pickle ? "text" : "inflated";
  return tensor.view.is_foreign_byte_order() ? "byte order" : "-";
}

std::vector<std::string> row(const NamedTensor& tensor, const LsOptions& options,
                             const Extras& extras) {
  const TensorView& view = tensor.view;
  const TableStyle& style = options.style;
  std::vector<std::string> cells = {printable(tensor.name), std::string(to_string(view.dtype())),
                                    style.dims(view.shape()), style.bytes(view.nbytes())};
  if (options.long_form)
    cells.insert(cells.end(),
                 {style.dims(view.strides()), printable(tensor.storage),
                  std::to_string(tensor.storage_offset), std::to_string(tensor.file_offset)});
  if (extras.lazy) cells.push_back(lazy_text(view).empty() ? "-" : lazy_text(view));
  if (extras.file) cells.push_back(printable(file_name(tensor)));
  if (extras.copied) cells.push_back(copy_text(tensor, extras));
  if (extras.filling != nullptr)
    cells.push_back(extras.filling->is_unwritten(tensor.storage) ? "no" : "yes");
  return cells;
}

std::string summary(const Checkpoint& checkpoint, const TableStyle& style,
                    const std::vector<std::size_t>& indices) {
  std::uint64_t bytes = 0;
  for (std::size_t index : indices) bytes += checkpoint.tensors()[index].view.nbytes();
  const std::size_t all = checkpoint.tensors().size();
  const std::string what =
      indices.size() == all
          ? count(all, "tensor") + ", " + count(Backing(checkpoint).storage_count(), "storage")
          : std::to_string(indices.size()) + " of " + count(all, "tensor");
  return what + ", " + style.bytes(bytes) + (style.exact_bytes ? " bytes\n" : "\n");
}

Extras extras_of(const Checkpoint& checkpoint, const LsOptions& options,
                 const std::vector<std::size_t>& indices) {
  Extras extras;
  extras.lazy =
      options.long_form && std::any_of(indices.begin(), indices.end(), [&](std::size_t index) {
        return !lazy_text(checkpoint.tensors()[index].view).empty();
      });
  extras.copied =
      options.long_form && std::any_of(indices.begin(), indices.end(), [&](std::size_t index) {
        return !checkpoint.tensors()[index].is_zero_copy();
      });
  extras.is_pickle = checkpoint.info().format == Format::pickle;
  extras.file = options.long_form && files_of(checkpoint).size() > 1;
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  if (reserved && !reserved->is_sealed) extras.filling = &*reserved;
  return extras;
}

void print_composed(Output& out, const LsOptions& options,
                    std::span<const ComposedTensor> composed) {
  if (options.style.tsv || composed.empty()) return;
  if (options.long_form)
    out.write("\n" + composed_table(composed));
  else
    out.write("composed tensors: " + composed_summary(composed) + " (see ls --long)\n");
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
  const Extras extras = extras_of(checkpoint, options, indices);
  if (extras.lazy) columns.push_back({"LAZY", Column::left});
  if (extras.file) columns.push_back({"FILE", Column::left});
  if (extras.copied) columns.push_back({"COPIED", Column::left});
  if (extras.filling != nullptr) columns.push_back({"WRITTEN", Column::left});
  if (!indices.empty() || options.style.tsv)
    print_columns(out, options.style, columns, indices.size(), [&](std::size_t i) {
      return row(checkpoint.tensors()[indices[i]], options, extras);
    });
  if (!options.style.tsv) out.write(summary(checkpoint, options.style, indices));
}

Result<int> run_records(Output& out, const LsOptions& options) {
  TRY(check_is_file(options));
  TRY(check_may_look(options));
  TRY_ASSIGN(const ArchiveReader archive, ArchiveReader::open(options.file, options.open));
  if (options.json)
    print_records_json(out, archive, options.file);
  else
    print_records(out, archive, options.style);
  return exit_good;
}

// Returns the composed tensors with a listed name.
std::vector<ComposedTensor> listed(std::span<const ComposedTensor> composed,
                                   const std::vector<std::size_t>& indices, bool all) {
  std::vector<ComposedTensor> found;
  for (const ComposedTensor& each : composed) {
    const auto first = std::lower_bound(indices.begin(), indices.end(), each.first_part);
    const bool has_part = first != indices.end() && *first - each.first_part < each.part_count;
    if (all || has_part) found.push_back(each);
  }
  return found;
}

// What there is beside the tensors of the table.
void print_unlisted(Output& out, const Checkpoint& checkpoint) {
  if (!checkpoint.info().unsupported.empty())
    out.write("not listed: " + unlisted_text(checkpoint.info()) + "\n");
  const std::size_t arrays = count_arrays(checkpoint);
  const Value root = checkpoint.root();
  if (arrays > 0)
    out.write("kept as values: " + count(arrays, "array") +
              " of numpy (weightmap tree shows them; weightmap cat and root() read them)\n");
  else if (checkpoint.tensors().size() == 0 &&
           (root.size() + root.item_count() > 0 || root.integer() || root.real() || root.string()))
    out.write("the file has values alone (weightmap tree shows them)\n");
}

void print_info(Output& out, const Checkpoint& checkpoint, const LsOptions& options) {
  if (options.json)
    out.write(to_text(describe_file(options.file, checkpoint)) + "\n");
  else
    print_description(out, options.file, checkpoint);
}

void list(Output& out, const Checkpoint& checkpoint, const LsOptions& options,
          const std::vector<std::size_t>& indices) {
  std::vector<std::size_t> in_file_order = indices;
  std::sort(in_file_order.begin(), in_file_order.end());
  const std::vector<ComposedTensor> composed =
      listed(composed_tensors(checkpoint), in_file_order, options.selection.patterns.empty());
  if (options.json) return print_json(out, checkpoint, options, indices, composed);
  print_table(out, checkpoint, options, indices);
  print_composed(out, options, composed);
  if (!options.style.tsv) print_unlisted(out, checkpoint);
}

// The URL of what leads to the model: of a local one too, whose folder is listed as a store's.
Result<std::string> url_of_lead(const LsOptions& options) {
  if (options.is_remote()) return options.url;
  TRY_ASSIGN(const std::vector<std::filesystem::path> files, weightmap::files_of(options.file));
  std::error_code unknown;
  return file_url(std::filesystem::absolute(files.front(), unknown));
}

Result<int> run_files(Output& out, const LsOptions& options) {
  TRY(check_may_look(options));
  TRY_ASSIGN(const std::string url, about(options, url_of_lead(options)));
  const auto open = [&](const std::string& each) { return open_remote(each, options.remote); };
  TRY_ASSIGN(std::unique_ptr<RangeSource> lead, about(options, open_lead(url, open)));
  TRY_ASSIGN(const std::vector<ModelFile> files, about(options, model_files(std::move(lead))));
  if (options.json)
    print_model_files_json(out, files, options.file);
  else
    print_model_files(out, files, options.style);
  return exit_good;
}

Result<int> run_ls(Output& out, const LsOptions& options) {
  if (options.files) return run_files(out, options);
  if (options.records) return run_records(out, options);
  TRY_ASSIGN(const Checkpoint checkpoint, open_to_look(options));
  if (options.info) {
    print_info(out, checkpoint, options);
    return exit_good;
  }
  TRY_ASSIGN(const std::vector<std::size_t> indices, about(options, listed(checkpoint, options)));
  if (options.sums)
    print_sums(out, checkpoint, indices,
               {options.file, options.depth, options.sort, options.style, options.json});
  else
    list(out, checkpoint, options, indices);
  return exit_good;
}

// What is printed instead of the list, and what then has no meaning.
void check_combination(const CLI::App& command) {
  struct Instead {
    const char* option;
    std::vector<const char*> without;
  };
  const std::array<Instead, 4> all = {
      {{"--info", {"--sum", "--records", "PATTERN", "--long", "--sort", "--tsv"}},
       {"--records", {"--sum", "PATTERN", "--long", "--sort"}},
       {"--sum", {"--long"}},
       {"--files", {"--info", "--records", "--sum", "PATTERN", "--long", "--sort"}}}};
  for (const Instead& each : all)
    for (const char* const other : each.without)
      if (command.count(each.option) != 0 && command.count(other) != 0)
        throw CLI::ExcludesError(each.option, other);
}

}  // namespace

void add_ls(CLI::App& app, Run& run) {
  auto options = std::make_shared<LsOptions>();
  CLI::App& command = *app.add_subcommand("ls", "List the tensors");
  add_common_options(command, *options);
  command
      .add_option("PATTERN", options->selection.patterns,
                  "Only names that match, e.g. '*.wq.weight'")
      ->type_name("");
  command.add_flag("-l,--long", options->long_form, "Add strides, storage and offsets");
  command.add_flag("--info", options->info, "Describe the file instead, and what opening it took");
  command.add_flag("--records", options->records,
                   "All records of the archive instead: code, extra files, storages");
  command.add_flag("--files", options->files,
                   "The files of the model instead, and those beside its weights");
  CLI::Option* const sums = command.add_flag(
      "--sum", options->sums, "Sizes instead, added up by the beginning of the names");
  command
      .add_option(
          "-d,--depth", options->depth,
          "With --sum: a line for all tensors that share the first N parts of their names;\n"
          "without it, as many parts as give at most 40 lines")
      ->type_name("N")
      ->check(CLI::Range(1, 65535))
      ->needs(sums);
  add_sort_option(command, options->sort);
  add_table_options(command, options->style);
  add_verify_option(command, *options);
  add_remote_options(command, options->remote);
  command.footer(
      "Tied tensors, which are the same elements, count once in a sum.\n"
      "Examples:\n"
      "  weightmap ls model.pt\n"
      "  weightmap ls --long model.pt 'layers.0.*'\n"
      "  weightmap ls --sum --depth 1 --sort size train.pt\n"
      "  weightmap ls --info model.pt\n"
      "  weightmap ls --files s3://bucket/llama/\n"
      "  weightmap ls --sort size model.pt '*.weight' '*.bias' | head\n"
      "  weightmap ls --tsv model.pt | cut -f 1,4\n"
      "  weightmap ls --json model.pt | jq -r '.tensors[].name'");
  command.callback([options, &command, &run] {
    check_combination(command);
    run = [options](Output& out) { return run_ls(out, *options); };
  });
}

}  // namespace weightmap::cli
