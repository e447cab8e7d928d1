// `weightmap delta` and `weightmap apply`.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/number_text.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli {
namespace {

// The words of an enumeration on the command line.
template <class Enum, std::size_t Count>
void add_word_option(CLI::App& command, const char* name, Enum& value, const Enum (&all)[Count],
                     const std::string& about) {
  std::vector<std::string> words;
  for (const Enum each : all) words.emplace_back(to_string(each));
  command
      .add_option_function<std::string>(
          name,
          [&value, &all](const std::string& word) {
            for (const Enum each : all)
              if (to_string(each) == word) value = each;
          },
          about)
      ->check(CLI::IsMember(words))
      ->type_name(joined_words(words, "|"));
}

constexpr DeltaEncoding all_encodings[] = {DeltaEncoding::xor_bytes, DeltaEncoding::overwrite};
constexpr TensorSum all_sums[] = {TensorSum::xxh3_128, TensorSum::blake3, TensorSum::adler32};

Json paths(const std::vector<std::filesystem::path>& files) {
  Json list = Json::array();
  for (const std::filesystem::path& file : files) list.push_back(file.native());
  return list;
}

std::string part_text(std::uint64_t part, std::uint64_t all) {
  const double hundredths =
      all == 0 ? 0 : 1e4 * static_cast<double>(part) / static_cast<double>(all);
  return number_text(std::optional(std::round(hundredths) / 100)) + " %";
}

std::string changed_text(std::uint64_t changed, std::uint64_t all) {
  return std::to_string(changed) + " of " + count(all, "tensor") + " changed";
}

struct DeltaCommand {
  std::string from, to, folder;
  DeltaOptions how;
  bool json = false;
};

// Draws, and stops at Ctrl-C, so that nothing is left behind.
Progress follow(ProgressBar& bar) {
  return [&bar](std::uint64_t done, std::uint64_t all) {
    bar.update(done, all);
    return !interrupted();
  };
}

Result<int> run_delta(Output& out, DeltaCommand& command) {
  const Interruptible interruptible;
  ProgressBar bar;
  command.how.progress = follow(bar);
  TRY_ASSIGN(const DeltaReport report,
             write_delta(command.from, command.to, command.folder, command.how));
  if (command.json)
    out.write(to_text(Json{{"from", command.from},
                           {"to", command.to},
                           {"delta", command.folder},
                           {"version", report.version},
                           {"base_version", report.base_version},
                           {"files", paths(report.files)},
                           {"tensors", report.tensors},
                           {"changed_tensors", report.changed_tensors},
                           {"tensor_bytes", report.tensor_bytes},
                           {"changed_bytes", report.changed_bytes},
                           {"bytes", report.bytes}}) +
              "\n");
  else
    out.write(printable(command.folder) + ": version " + printable(report.version) + " from " +
              printable(report.base_version) + ", " +
              changed_text(report.changed_tensors, report.tensors) + ", " +
              part_text(report.changed_bytes, report.tensor_bytes) + " of their bytes; " +
              human_bytes(report.bytes) + ", " + part_text(report.bytes, report.tensor_bytes) +
              " of " + human_bytes(report.tensor_bytes) + "\n");
  return exit_good;
}

struct ApplyCommand {
  std::string base;
  std::vector<std::string> deltas;
  std::string to;
  std::string link;  // empty: none
  bool in_place = false;
  ApplyOptions how;
  bool json = false;

  // That has the new version.
  const std::string& folder() const { return in_place ? base : to; }
};

std::string applied_line(const ApplyCommand& command, const ApplyReport& report) {
  std::string line =
      printable(command.folder()) + (report.made ? ": version " : ": was there, version ") +
      printable(report.version) + " from " + printable(report.base_version) + " by " +
      count(report.deltas, "delta") + ", " + changed_text(report.changed_tensors, report.tensors) +
      "; " + human_bytes(report.bytes);
  if (report.shared_bytes != 0) line += ", of which what did not change takes no space";
  if (!command.link.empty()) line += "; " + printable(command.link) + " leads to it";
  return line + "\n";
}

// Before the work, so that a new folder is not left without its link.
Result<void> check_link(const std::string& link, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (link.empty()) return {};
  if (fs::absolute(link, unknown).lexically_normal() ==
      fs::absolute(folder, unknown).lexically_normal())
    return failure(ErrorCode::invalid_argument,
                   printable(link) + " is to be the new folder, and cannot be a link to it");
  if (!fs::is_directory(fs::absolute(link, unknown).parent_path(), unknown))
    return failure(ErrorCode::invalid_argument, printable(link) + " would be in no folder");
  const auto type = fs::symlink_status(link, unknown).type();
  if (type == fs::file_type::not_found || type == fs::file_type::symlink) return {};
  return failure(ErrorCode::invalid_argument,
                 printable(link) +
                     " is there already, and is no symbolic link that could lead to "
                     "the new folder");
}

Result<int> run_apply(Output& out, ApplyCommand& command) {
  const Interruptible interruptible;
  ProgressBar bar;
  command.how.progress = follow(bar);
  TRY(check_link(command.link, command.to));
  const std::vector<std::filesystem::path> deltas(command.deltas.begin(), command.deltas.end());
  TRY_ASSIGN(const ApplyReport report,
             command.in_place ? apply_delta_in_place(command.base, deltas, command.how)
                              : apply_delta(command.base, deltas, command.to, command.how));
  if (!command.link.empty()) TRY(publish(command.to, command.link));
  if (command.json)
    out.write(to_text(Json{{"base", command.base},
                           {"folder", command.folder()},
                           {"published", command.link.empty() ? Json(nullptr) : Json(command.link)},
                           {"version", report.version},
                           {"base_version", report.base_version},
                           {"made", report.made},
                           {"files", paths(report.files)},
                           {"deltas", report.deltas},
                           {"tensors", report.tensors},
                           {"changed_tensors", report.changed_tensors},
                           {"bytes", report.bytes},
                           {"shared_bytes", report.shared_bytes},
                           {"delta_bytes", report.delta_bytes}}) +
              "\n");
  else
    out.write(applied_line(command, report));
  return exit_good;
}

}  // namespace

void add_delta(CLI::App& app, Run& run) {
  auto options = std::make_shared<DeltaCommand>();
  CLI::App& command =
      *app.add_subcommand("delta", "Write what changed from one version of a model to the next");
  command
      .add_option("OLD", options->from, "The checkpoint before: a file, a set, a folder, org/name")
      ->required()
      ->type_name("");
  command.add_option("NEW", options->to, "The one after, with the same tensors")
      ->required()
      ->type_name("");
  command.add_option("FOLDER", options->folder, "The new folder of the delta: weight_v000002")
      ->required()
      ->type_name("");
  add_word_option(command, "--encoding", options->how.encoding, all_encodings,
                  "What a frame holds: all bytes, combined with the old ones (default), or the "
                  "positions and values of those that differ");
  add_word_option(command, "--sums", options->how.sum, all_sums,
                  "By what a tensor is proven once it is changed; default: xxh3-128");
  command
      .add_option("--level", options->how.level, "Of zstd, 1 to 19; default: 1, which is fastest")
      ->check(CLI::Range(1, 19))
      ->type_name("N");
  command
      .add_option("--version", options->how.version,
                  "Of NEW; default: as FOLDER is called, or one more than OLD has")
      ->type_name("VERSION");
  command
      .add_option("--base-version", options->how.base_version,
                  "Of OLD; default: what its folder says, else 000000")
      ->type_name("VERSION");
  command.add_option("--threads", options->how.threads, "Default: one for each processor")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "The format is that of slime, miles, SGLang and ModelExpress: a folder of safetensors with\n"
      "a frame of zstd for each tensor that changed. It appears when it is complete.\n"
      "Examples:\n"
      "  weightmap delta llama-1 llama-2 deltas/weight_v000002\n"
      "  weightmap delta old.pt new.pt deltas/weight_v000001 --encoding overwrite");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_delta(out, *options); }; });
}

void add_apply(CLI::App& app, Run& run) {
  auto options = std::make_shared<ApplyCommand>();
  CLI::App& command =
      *app.add_subcommand("apply", "Make the next version of a model from deltas, beside it");
  command.add_option("BASE", options->base, "The folder of the model, with safetensors")
      ->required()
      ->type_name("");
  command.add_option("DELTA", options->deltas, "Folders of deltas, each for the version before it")
      ->required()
      ->type_name("");
  CLI::Option* const to =
      command.add_option("--to", options->to, "The new folder")->type_name("FOLDER");
  CLI::Option* const in_place = command.add_flag(
      "--in-place", options->in_place,
      "Change the files of BASE, which nobody may have open, and which has another name meanwhile");
  CLI::Option* const link =
      command
          .add_option("--publish", options->link,
                      "A symbolic link, which leads to the new folder then, as `publish` makes it")
          ->type_name("LINK");
  in_place->excludes(to)->excludes(link);
  command
      .add_option("--base-version", options->how.base_version,
                  "Of BASE; default: what its folder says, else 000000")
      ->type_name("VERSION");
  command.add_flag(
      "--once", options->how.once,
      "Make it once for all who ask for the same FOLDER: wait for another process that "
      "makes it, and take what is there already");
  command.add_option("--threads", options->how.threads, "Default: one for each processor")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "BASE is only read, and who has it open keeps it. The new folder appears when all of it was\n"
      "compared with the sums of the deltas; of several deltas nothing between is written.\n"
      "Examples:\n"
      "  weightmap apply llama deltas/weight_v000002 --to llama@2 --publish llama\n"
      "  weightmap apply /models/llama deltas/weight_v00000[1-5] --to /dev/shm/llama@5");
  command.callback([options, &run] {
    if (options->to.empty() && !options->in_place) throw CLI::RequiredError("--to or --in-place");
    run = [options](Output& out) { return run_apply(out, *options); };
  });
}

}  // namespace weightmap::cli
