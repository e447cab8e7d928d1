#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/size_option.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli {
namespace {

struct ConvertCommand {
  std::vector<std::string> from;
  std::string to;
  std::string order = "file";
  ConvertOptions how;
  bool json = false;

  std::vector<std::filesystem::path> sources() const { return {from.begin(), from.end()}; }
};

std::string_view word_of(WrittenFormat format) {
  if (format == WrittenFormat::safetensors) return "safetensors";
  return format == WrittenFormat::pt ? "pt" : "pt2";
}

WrittenFormat format_of(std::string_view word) {
  if (word == "safetensors") return WrittenFormat::safetensors;
  return word == "pt" ? WrittenFormat::pt : WrittenFormat::pt2;
}

SharedElements shared_from(std::string_view word) {
  if (word == "drop") return SharedElements::drop;
  return word == "copy" ? SharedElements::copy : SharedElements::refuse;
}

std::string check_metadata(const std::string& text) {
  return text.find('=') == text.npos ? "must be like KEY=TEXT" : "";
}

// Returns the names of the tensors in the order file, whose lines may be patterns.
Result<std::vector<std::string>> names_in_order(const ConvertCommand& command) {
  std::vector<Checkpoint> checkpoints;
  std::vector<std::string_view> names;
  for (const std::string& path : command.from) {
    TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path, command.how.open));
    std::ranges::copy(whole_names(checkpoint), std::back_inserter(names));
    checkpoints.push_back(std::move(checkpoint));
  }
  TRY_ASSIGN(const TensorOrder order, load_tensor_order(names, command.order));
  std::vector<std::string> ordered;
  for (const std::size_t index : order.tensors) ordered.emplace_back(names[index]);
  return ordered;
}

std::string describe_as_json(const ConvertCommand& command, const ConvertReport& report) {
  Json dropped = Json::object();
  for (const auto& [name, kept] : report.dropped) dropped[name] = kept;
  Json files = Json::array();
  for (const std::filesystem::path& file : report.files) files.push_back(file.native());
  return to_text(Json{{"sources", command.from},
                      {"target", command.to},
                      {"format", word_of(report.format)},
                      {"files", files},
                      {"tensors", report.tensors},
                      {"storages", report.storages},
                      {"alignment", report.alignment},
                      {"old_bytes", report.old_bytes},
                      {"bytes", report.new_bytes},
                      {"dropped", dropped},
                      {"left_out", report.left_out}}) +
         "\n";
}

std::string describe_as_text(const ConvertReport& report) {
  std::string text;
  for (const std::filesystem::path& file : report.files) text += printable(file.native()) + "\n";
  for (const auto& [name, kept] : report.dropped)
    text += printable(name) + " is " + printable(kept) + ", and in the metadata only\n";
  return text;
}

// Returns "3 names: epoch, lr, optimizer.param_groups".
std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string text = count(names.size(), "name");
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i == 0 ? ": " : ", ") + printable(names[i]);
  return text + (names.size() > most ? ", ..." : "");
}

Result<int> run_convert(Output& out, ConvertCommand& command) {
  if (command.order != "file") {
    TRY_ASSIGN(command.how.order, names_in_order(command));
  }
  ProgressBar bar;
  command.how.progress = bar.follow();
  const Result<ConvertReport> report = convert(command.sources(), command.to, command.how);
  if (!report) return tl::unexpected<Error>(report.error());
  if (!report->left_out.empty())
    std::fprintf(stderr, "weightmap: left out: %s\n", list_of(report->left_out).c_str());
  out.write(command.json ? describe_as_json(command, *report) : describe_as_text(*report));
  return exit_good;
}

void add_layout_options(CLI::App& command, ConvertCommand& options) {
  add_size_option(
      command, "--align", [&options](std::uint64_t bytes) { options.how.alignment = bytes; },
      "Of a torch file: begin storages at multiples of this: 64, 4096, 2MiB; default: as they are");
  command
      .add_option("--order", options.order,
                  "The tensors in FILE come first, in its order (weightmap warm has such files); "
                  "default: file, as they are")
      ->type_name("file|FILE");
  add_size_option(
      command, "--max-shard-size",
      [&options](std::uint64_t bytes) { options.how.max_shard_bytes = bytes; },
      "Bytes of tensors in each file of a set; default: one file");
  command
      .add_option_function<std::string>(
          "--crc", [&options](const std::string& word) { options.how.crc32 = word == "on"; },
          "Of a torch file: whether to write CRC-32s; default: as it is")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
  command.add_flag("--tensors-only", options.how.tensors_only,
                   "Of a torch file that would be kept as it is, write the tensors by their names");
}

void add_safetensors_options(CLI::App& command, ConvertCommand& options) {
  const auto add_metadata = [&options](const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      options.how.metadata.emplace_back(text.substr(0, text.find('=')),
                                        text.substr(text.find('=') + 1));
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--metadata", add_metadata,
          "A text for the metadata of safetensors; may be given again. format=pt is there by "
          "itself")
      ->check(CLI::Validator(check_metadata, ""))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY=TEXT");
  command
      .add_option_function<std::string>(
          "--shared",
          [&options](const std::string& word) { options.how.shared = shared_from(word); },
          "Tensors that share their elements, in safetensors: refuse them (default), drop all "
          "names but the first into the metadata, or write a copy for each")
      ->check(CLI::IsMember({"refuse", "drop", "copy"}))
      ->type_name("refuse|drop|copy");
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App& command = *app.add_subcommand(
      "convert", "Write checkpoints as another format, laid out otherwise, in other files");
  // CLI11 assigns all words to a list, so OUT is its last one.
  command
      .add_option("IN", options->from,
                  "Checkpoints: a file, a set, a folder, org/name; and last the file to write, "
                  "which may be one of them: .safetensors, or .pt, .pth, .bin for torch; the index "
                  "of a set; or a folder, with a slash behind it")
      ->required()
      ->option_text("... OUT REQUIRED");
  command
      .add_option_function<std::string>(
          "--to", [options](const std::string& word) { options->how.format = format_of(word); },
          "The format, whatever OUT ends with; of a folder safetensors, unless this says pt")
      ->check(CLI::IsMember({"safetensors", "pt", "pt2"}))
      ->type_name("safetensors|pt|pt2");
  add_layout_options(command, *options);
  add_safetensors_options(command, *options);
  command.add_flag("--json", options->json, "One JSON document on standard output");
  add_open_option(command, "repeats", options->how.open);
  add_selection_options(command, options->how.open);
  command.footer(
      "A torch file that becomes a torch file keeps all that it has. Else tensors are written by\n"
      "their names, and standard error names what is left out. The new files appear once all are\n"
      "whole and on the disk. Who has the old ones open keeps them.\n"
      "Examples:\n"
      "  weightmap convert pytorch_model.bin model.safetensors --shared drop\n"
      "  weightmap convert model.pt model/ --max-shard-size 5GB   # a set and its index\n"
      "  weightmap convert model/ model.pt                        # a folder of shards\n"
      "  weightmap convert encoder.pt decoder.pt model.pt\n"
      "  weightmap convert model.pt model.pt --align 2MiB         # for huge pages\n"
      "  weightmap convert model.pt model.pt --order order        # in the order of use");
  command.callback([options, &run] {
    if (options->from.size() < 2) throw CLI::RequiredError("OUT");
    options->to = std::move(options->from.back());
    options->from.pop_back();
    if (const Result<void> ok = check_target(options->to, options->how); !ok)
      throw CLI::ValidationError("convert", ok.error().message);
    run = [options](Output& out) { return run_convert(out, *options); };
  });
}

}  // namespace weightmap::cli
