#include <algorithm>
#include <memory>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "tools/command.hpp"
#include "tools/doctor/costly_imports.hpp"
#include "tools/doctor/findings.hpp"
#include "tools/doctor/python_facts.hpp"
#include "tools/doctor/start_waits.hpp"
#include "tools/doctor/watched_start.hpp"
#include "tools/options/ready_option.hpp"
#include "tools/snapshot/ability.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli {
namespace {

struct DoctorCommand {
  std::string file;
  std::optional<DType> dtype;
  std::string python;
  std::string ready;
  std::vector<std::string> command;  // whose start is watched; empty: none
  bool imports = false;
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
  facts.drops_pages_at_open = drops_pages_at_open(checkpoint);
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

doctor::Finding snapshots() {
  const Result<std::string> criu = snapshot::ability();
  if (!criu)
    return {"snapshots", doctor::Finding::unknown, "not possible here: " + criu.error().message};
  return {"snapshots", doctor::Finding::good,
          "weightmap run --snapshot can restore a start, with criu " + *criu};
}

Result<std::vector<doctor::Finding>> findings_about(const DoctorCommand& options) {
  std::vector<doctor::Finding> found;
  if (!options.file.empty()) {
    TRY(check_look_is_harmless(options.file));
    TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.file, OpenOptions::to_look()));
    TRY(prove_tensors(checkpoint));
    found = findings(look_at(checkpoint, options));
  }
  if (!options.python.empty()) {
    found.push_back(doctor::patching(options.python));
    if (std::optional<doctor::Finding> way = doctor::torch_way(options.python))
      found.push_back(*std::move(way));
  }
  if (!options.file.empty()) found.push_back(snapshots());
  return found;
}

Json describe_start(const doctor::WatchedStart& start) {
  const start::StartTimeline& timeline = start.timeline;
  Json phases = Json::array(), waits = Json::array();
  for (const start::StartPhase& phase : phases_of(timeline)) {
    const start::StartSample step =
        difference(timeline.samples[phase.first], timeline.samples[phase.last]);
    phases.push_back({{"name", to_string(phase.kind)},
                      {"seconds", step.seconds},
                      {"processor_seconds", step.counts.user_seconds + step.counts.system_seconds},
                      {"disk_bytes", step.counts.read_bytes},
                      {"major_faults", step.counts.major_faults},
                      {"minor_faults", step.counts.minor_faults},
                      {"code_files", step.code_files},
                      {"weight_bytes", step.weight_bytes}});
  }
  for (const doctor::StartWait& wait : doctor::waits_of(timeline))
    waits.push_back({{"for", to_string(wait.kind)}, {"seconds", wait.seconds}});
  return {{"program", printable(timeline.program)},
          {"seconds", timeline.seconds()},
          {"exit_status", start.exit_status ? Json(*start.exit_status) : Json(nullptr)},
          {"phases", phases},
          {"waits", waits},
          {"weights_can_be_mapped", timeline.weights_can_be_mapped},
          {"sentences", doctor::sentences_about(timeline)}};
}

std::vector<std::string> advice_about(const std::vector<std::string>& command,
                                      const doctor::WatchedImports& imports) {
  doctor::ImportMeans means;
  means.snapshots = snapshot::ability().has_value();
  if (!imports.python.empty()) {
    means.lazy_python = doctor::lazy_version(imports.python);
    means.uncompiled =
        doctor::packages_without_bytecode(imports.python, doctor::costly_packages(imports.times));
  }
  return doctor::import_advice(command, imports.times.seconds(), means);
}

Json describe_imports(const std::vector<std::string>& command,
                      const doctor::WatchedImports& imports) {
  Json costly = Json::array();
  for (const doctor::CostlyImport& each : costly_imports(imports.times)) {
    Json importers = Json::array();
    for (const std::string& importer : each.importers) importers.push_back(importer);
    costly.push_back(
        {{"module", each.module}, {"seconds", each.seconds}, {"imported_by", importers}});
  }
  return {{"seconds", imports.times.seconds()},
          {"modules", imports.times.count()},
          {"interpreters", imports.times.interpreters()},
          {"exit_status", imports.exit_status ? Json(*imports.exit_status) : Json(nullptr)},
          {"costly", costly},
          {"advice", advice_about(command, imports)}};
}

void print_imports(Output& out, const std::vector<std::string>& command,
                   const doctor::WatchedImports& imports) {
  for (const std::string& line : doctor::lines_about(imports.times)) out.write(line + "\n");
  for (const std::string& advice : advice_about(command, imports)) out.write(advice + "\n");
}

void say_how_it_ended(std::string_view start, std::optional<int> exit_status) {
  if (exit_status.value_or(0) != 0)
    say(std::string(start) + " ended with status " + std::to_string(*exit_status));
}

// Adds to what is found, or prints it.
Result<void> run_imports(Output& out, const DoctorCommand& options, const start::Ready& ready,
                         Json& found) {
  say("starting it a second time, to see what it imports");
  TRY_ASSIGN(const doctor::WatchedImports imports, doctor::watch_imports(options.command, ready));
  say_how_it_ended("the second start", imports.exit_status);
  if (options.json)
    found["imports"] = describe_imports(options.command, imports);
  else
    print_imports(out, options.command, imports);
  return {};
}

Result<void> run_starts(Output& out, const DoctorCommand& options) {
  start::Ready ready;
  if (!options.ready.empty()) ready = start::parse_ready(options.ready).value();
  TRY_ASSIGN(const doctor::WatchedStart start, doctor::watch_start(options.command, ready));
  say_how_it_ended("the command", start.exit_status);
  Json found;
  if (options.json)
    found = describe_start(start);
  else
    for (const std::string& sentence : doctor::sentences_about(start.timeline))
      out.write(sentence + "\n");
  if (options.imports) TRY(run_imports(out, options, ready, found));
  if (options.json) out.write(to_text(found) + "\n");
  return {};
}

Result<int> run_start(Output& out, const DoctorCommand& options) {
  const Result<void> done = run_starts(out, options);
  if (!done && interrupted()) return exit_interrupted;
  if (!done) return tl::unexpected<Error>(done.error());
  return exit_good;
}

// "--" may only be told from what it leaves behind; the first word of COMMAND is taken for FILE.
void take_command(const CLI::App& command, DoctorCommand& options) {
  const std::vector<std::string> left = command.remaining();
  const bool has_command = std::find(left.begin(), left.end(), "--") != left.end();
  if (!has_command && !options.command.empty())
    throw CLI::ExtrasError(command.get_name(), options.command);
  if (!has_command && !options.ready.empty()) throw CLI::RequiresError("--ready", "-- COMMAND");
  if (!has_command && options.imports) throw CLI::RequiresError("--imports", "-- COMMAND");
  if (!has_command) return;
  if (options.file.empty()) throw CLI::RequiredError("COMMAND");
  if (!options.python.empty() || options.dtype)
    throw CLI::ExcludesError("COMMAND", "--python and --dtype");
  options.command.insert(options.command.begin(), std::exchange(options.file, {}));
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
  CLI::App& command = *app.add_subcommand(
      "doctor", "Say what makes a start slow here: with a file, or of a command");
  command.add_option("FILE", options->file, "The checkpoint")->type_name("");
  command
      .add_option(
          "--python", options->python,
          "An interpreter: whether WEIGHTMAP_PATCH reaches its programs, and how tensors of its "
          "torch are made. FILE may be left out")
      ->type_name("PROGRAM");
  command
      .add_option_function<std::string>(
          "--dtype", [options](const std::string& text) { options->dtype = parse_wanted(text); },
          "What the weights are to be used as, so that a conversion costs memory")
      ->type_name("float64|float32|float16|bfloat16");
  add_ready_option(command, options->ready);
  command.add_flag("--imports", options->imports,
                   "Start COMMAND a second time, and name the imports of Python that cost most");
  command
      .add_option("COMMAND", options->command,
                  "Behind --: is run until its start is over, and watched")
      ->type_name("");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "Opening the file for this reads its metadata, which is cached afterwards. A command that\n"
      "still runs when its start is over gets SIGTERM. The exit status is 0 whatever is found.\n"
      "Examples:\n"
      "  weightmap doctor model.safetensors\n"
      "  weightmap doctor --dtype bfloat16 model.pt\n"
      "  weightmap doctor --python .venv/bin/python\n"
      "  weightmap doctor --ready 8000 -- python serve.py --port 8000\n"
      "  weightmap doctor --imports -- python serve.py");
  command.callback([options, &run, &command] {
    take_command(command, *options);
    if (!options->command.empty()) {
      run = [options](Output& out) { return run_start(out, *options); };
      return;
    }
    if (options->file.empty() && options->python.empty())
      throw CLI::RequiredError("FILE or --python");
    run = [options](Output& out) { return run_doctor(out, *options); };
  });
}

}  // namespace weightmap::cli
