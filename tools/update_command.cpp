#include <memory>
#include <string>

#include "tools/command.hpp"
#include "tools/progress_bar.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/update/array_file.hpp"
#include "weightmap/repack.hpp"

namespace weightmap::cli {
namespace {

struct UpdateCommand {
  std::string file;
  std::string name;
  std::string array;
  bool raw = false;
  bool json = false;
  UpdateOptions how;
};

Result<RecordContent> elements_of(const UpdateCommand& command) {
  if (command.raw) return raw_elements(command.array);
  const Result<Checkpoint> checkpoint = Checkpoint::open(command.file, OpenOptions::to_look());
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<NamedTensor> tensor = checkpoint->get(command.name);
  if (!tensor) return tl::unexpected<Error>(tensor.error());
  return npy_elements(command.array, tensor->view);
}

Json describe_update(const UpdateCommand& command, const UpdateReport& report) {
  return {{"file", command.file},
          {"tensor", command.name},
          {"tensor_bytes", report.tensor_bytes},
          {"file_bytes", report.file_bytes},
          {"also_changed", report.others}};
}

std::string update_line(const UpdateCommand& command, const UpdateReport& report) {
  std::string line = printable(command.file) + ": " + human_bytes(report.tensor_bytes) + " of " +
                     printable(command.name) + " replaced in a new copy of " +
                     human_bytes(report.file_bytes) + "; who has the old file open keeps it\n";
  for (const std::string& other : report.others)
    line += "changed with it: " + printable(other) + "\n";
  return line;
}

Result<int> run_update(Output& out, UpdateCommand& command) {
  const Result<RecordContent> elements = elements_of(command);
  if (!elements) return tl::unexpected<Error>(elements.error());
  ProgressBar bar;
  command.how.progress = bar.follow();
  const Result<UpdateReport> report =
      update_tensor(command.file, command.name, *elements, command.how);
  if (!report) return tl::unexpected<Error>(report.error());
  out.write(command.json ? to_text(describe_update(command, *report)) + "\n"
                         : update_line(command, *report));
  return exit_good;
}

}  // namespace

void add_update(CLI::App& app, Run& run) {
  auto options = std::make_shared<UpdateCommand>();
  CLI::App& command = *app.add_subcommand("update", "Replace the values of one tensor");
  command.add_option("FILE", options->file, "The checkpoint")->required()->type_name("");
  command.add_option("NAME", options->name, "The tensor")->required()->type_name("");
  command.add_option("ARRAY", options->array, "A .npy file of the same type and shape")
      ->required()
      ->type_name("");
  command.add_flag("--raw", options->raw,
                   "ARRAY holds the elements as they are, as `cat --raw` writes them");
  command.add_flag("--shared", options->how.shared,
                   "Even if other tensors that lie in the same bytes change with it");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "The file is written again and takes the place of the old one once it is whole and on the\n"
      "disk, so nobody sees half of it.\n"
      "Examples:\n"
      "  weightmap update model.pt head.bias bias.npy");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_update(out, *options); }; });
}

}  // namespace weightmap::cli
