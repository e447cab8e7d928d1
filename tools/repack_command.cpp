#include <memory>
#include <string>
#include <vector>

#include "tools/command.hpp"
#include "tools/progress_bar.hpp"
#include "tools/size_option.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/repack.hpp"
#include "weightmap/tensor_order.hpp"

namespace weightmap::cli {
namespace {

struct RepackCommand {
  std::string from;
  std::string to;
  std::string order = "file";
  bool json = false;
  RepackOptions how;
};

// The names in an order file, which may be patterns.
Result<std::vector<std::string>> names_in_order(const RepackCommand& command) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(command.from, OpenOptions::to_look());
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<TensorOrder> order = load_tensor_order(*checkpoint, command.order);
  if (!order) return tl::unexpected<Error>(order.error());
  std::vector<std::string> names;
  for (const std::size_t index : order->tensors)
    names.emplace_back(checkpoint->tensors()[index].name);
  return names;
}

Json describe_repacking(const RepackCommand& command, const RepackReport& report) {
  return {{"file", command.from},          {"target", command.to},
          {"old_bytes", report.old_bytes}, {"new_bytes", report.new_bytes},
          {"alignment", report.alignment}, {"storages", report.storages}};
}

std::string repacking_line(const RepackCommand& command, const RepackReport& report) {
  return printable(command.to) + ": " + human_bytes(report.new_bytes) + ", was " +
         human_bytes(report.old_bytes) + "; " + count(report.storages, "storage") + " aligned to " +
         human_bytes(report.alignment) + "\n";
}

Result<int> run_repack(Output& out, RepackCommand& command) {
  if (command.order != "file") {
    Result<std::vector<std::string>> names = names_in_order(command);
    if (!names) return tl::unexpected<Error>(names.error());
    command.how.order = std::move(*names);
  }
  ProgressBar bar;
  command.how.progress = bar.follow();
  const Result<RepackReport> report = repack(command.from, command.to, command.how);
  if (!report) return tl::unexpected<Error>(report.error());
  out.write(command.json ? to_text(describe_repacking(command, *report)) + "\n"
                         : repacking_line(command, *report));
  return exit_good;
}

}  // namespace

void add_repack(CLI::App& app, Run& run) {
  auto options = std::make_shared<RepackCommand>();
  CLI::App& command = *app.add_subcommand("repack", "Write a checkpoint again, laid out otherwise");
  command.add_option("IN", options->from, "The checkpoint")->required()->type_name("");
  command.add_option("OUT", options->to, "The file to write, which may be IN")
      ->required()
      ->type_name("");
  add_size_option(
      command, "--align", [options](std::uint64_t bytes) { options->how.alignment = bytes; },
      "Begin storages at multiples of this: 64, 4096, 2MiB; default: as they are");
  command
      .add_option("--order", options->order,
                  "The storages of the tensors in FILE come first, in its order (weightmap warm "
                  "has such files); default: file, as they are")
      ->type_name("file|FILE");
  command
      .add_option_function<std::string>(
          "--crc", [options](const std::string& word) { options->how.crc32 = word == "on"; },
          "Whether to write CRC-32s; default: as it is")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "The new file appears once it is whole and on the disk. Who has the old one open keeps it.\n"
      "Examples:\n"
      "  weightmap repack model.pt model.pt --align 2MiB      # for huge pages\n"
      "  weightmap repack model.pt model.pt --order order     # in the order of use");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_repack(out, *options); }; });
}

}  // namespace weightmap::cli
