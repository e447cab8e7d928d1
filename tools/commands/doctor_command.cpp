#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/doctor/findings.hpp"
#include "tools/doctor/patching.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/stage.hpp"

namespace weightmap::cli {
namespace {

struct DoctorCommand {
  std::string file;
  std::optional<DType> dtype;
  std::string python;
  bool json = false;
};

DType parse_wanted(const std::string& text) {
  using enum DType;
  for (const DType dtype : {float64, float32, float16, bfloat16})
    if (to_string(dtype) == text) return dtype;
  throw CLI::ValidationError(
      "--dtype", "must be float64, float32, float16 or bfloat16, not \"" + printable(text) + "\"");
}

doctor::Facts look_at(const Checkpoint& checkpoint, const DoctorCommand& options) {
  doctor::Facts facts;
  facts.file = options.file;
  facts.around = surroundings(checkpoint);
  facts.lives_in_memory = lives_in_memory(checkpoint);
  if (const Result<ResidencyReport> seen = residency(checkpoint))
    facts.residency = seen->file;
  else
    facts.residency_problem = seen.error().message;
  facts.wanted = options.dtype;
  facts.tensors = doctor::tensor_facts(checkpoint, options.dtype);
  facts.inflated_storages = checkpoint.stats().storages_copied;
  facts.inflated_bytes = checkpoint.stats().bytes_copied;
  return facts;
}

void print_findings(Output& out, const std::vector<doctor::Finding>& findings) {
  const auto line = [&out](std::string_view state, std::string_view topic,
                           const std::string& text) {
    out.write(std::string(state) + std::string(9 - state.size(), ' ') + std::string(topic) +
              std::string(15 - topic.size(), ' ') + text + "\n");
  };
  for (const doctor::Finding& finding : findings) {
    line(to_string(finding.state), finding.topic, finding.found);
    if (!finding.advice.empty()) line("", "", "do: " + finding.advice);
  }
}

Json describe_findings(const DoctorCommand& options, const std::vector<doctor::Finding>& findings) {
  Json list = Json::array();
  for (const doctor::Finding& finding : findings)
    list.push_back({{"topic", finding.topic},
                    {"state", to_string(finding.state)},
                    {"found", finding.found},
                    {"advice", finding.advice.empty() ? Json(nullptr) : Json(finding.advice)}});
  return {{"file", options.file.empty() ? Json(nullptr) : Json(options.file)}, {"findings", list}};
}

Result<std::vector<doctor::Finding>> findings_about(const DoctorCommand& options) {
  std::vector<doctor::Finding> found;
  if (!options.file.empty()) {
    TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.file, OpenOptions::to_look()));
    found = findings(look_at(checkpoint, options));
  }
  if (!options.python.empty()) found.push_back(doctor::patching(options.python));
  return found;
}

Result<int> run_doctor(Output& out, const DoctorCommand& options) {
  TRY_ASSIGN(const std::vector<doctor::Finding> found, findings_about(options));
  if (options.json)
    out.write(to_text(describe_findings(options, found)) + "\n");
  else
    print_findings(out, found);
  return exit_good;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  auto options = std::make_shared<DoctorCommand>();
  CLI::App& command =
      *app.add_subcommand("doctor", "Say what makes a start with the file slow here");
  command.add_option("FILE", options->file, "The checkpoint")->type_name("");
  command
      .add_option("--python", options->python,
                  "An interpreter: whether WEIGHTMAP_PATCH reaches its programs. FILE may be left "
                  "out")
      ->type_name("PROGRAM");
  command
      .add_option_function<std::string>(
          "--dtype", [options](const std::string& text) { options->dtype = parse_wanted(text); },
          "What the weights are to be used as, so that a conversion costs memory")
      ->type_name("float64|float32|float16|bfloat16");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "Opening the file for this reads its metadata, which is cached afterwards. The exit status "
      "is\n"
      "0 whatever is found.\n"
      "Examples:\n"
      "  weightmap doctor model.safetensors\n"
      "  weightmap doctor --dtype bfloat16 model.pt\n"
      "  weightmap doctor --python .venv/bin/python");
  command.callback([options, &run] {
    if (options->file.empty() && options->python.empty())
      throw CLI::RequiredError("FILE or --python");
    run = [options](Output& out) { return run_doctor(out, *options); };
  });
}

}  // namespace weightmap::cli
