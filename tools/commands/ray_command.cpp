#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/command.hpp"
#include "tools/run/program.hpp"

namespace weightmap::cli {
namespace {

struct RayCommand {
  std::string python = "python3";
  std::vector<std::string> words;
};

// Clusters are reached from Python: python/weightmap/_ray/__main__.py does the work.
int run_ray(const RayCommand& options) {
  std::vector<std::string> words{options.python, "-m", "weightmap._ray"};
  words.insert(words.end(), options.words.begin(), options.words.end());
  return start::become(std::move(words));
}

}  // namespace

void add_ray(CLI::App& app, Run& run) {
  auto options = std::make_shared<RayCommand>();
  CLI::App& command = *app.add_subcommand("ray", "Keep a copy on each node of a Ray cluster");
  command
      .add_option("--python", options->python,
                  "An interpreter that has weightmap and Ray; python3 unless given")
      ->type_name("PROGRAM");
  command.prefix_command();
  command.footer(
      "The words behind it are hold URL, status FLEET, publish FLEET URL, local FLEET, or\n"
      "release FLEET; with --help behind them each says what else it takes.\n"
      "Examples:\n"
      "  weightmap ray hold --name llama s3://bucket/model.safetensors\n"
      "  weightmap ray status llama\n"
      "  weightmap ray publish llama s3://bucket/model-2.safetensors");
  command.callback([options, &run, &command] {
    options->words = command.remaining();
    if (options->words.empty()) throw CLI::RequiredError("hold, status, publish, local or release");
    run = [options](Output&) -> Result<int> { return run_ray(*options); };
  });
}

}  // namespace weightmap::cli
