// `weightmap read-ahead`: what `weightmap run` does beside a command, for one that runs already.
// The Python package calls it.
#include <sys/types.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/run/program.hpp"
#include "tools/run/start_companion.hpp"
#include "tools/run/start_task.hpp"
#include "tools/run/work_beside.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

struct ReadAheadOptions {
  start::StartOptions start;
  pid_t process = 0;
  bool json = false;  // main() looks at it
  std::vector<std::string> command;
};

Result<void> check_models(const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    if (!start::given_model(model).empty()) continue;
    Error error{ErrorCode::not_found,
                "there is no such file, folder, or model in the hub's cache",
                Error::no_offset,
                {}};
    error.file = printable(model);
    return tl::unexpected<Error>(std::move(error));
  }
  return {};
}

Result<int> read_ahead(ReadAheadOptions& options) {
  TRY(check_models(options.start.models));
  const start::StartCommand command{start::find_program(options.command.front()), options.command};
  options.start.learns = false;
  const bool runs = start::run_in_background(
      options.start.speaks, [&](pid_t /*this process*/, const std::function<void()>& go_on) {
        go_on();
        start::accompany(options.process,
                         start::task_for(options.start, command,
                                         start::plan_path_of(options.start, command.key())),
                         go_on);
      });
  if (!runs)
    return failure(ErrorCode::io,
                   std::string("cannot make a process for reading: ") + std::strerror(errno));
  return exit_good;
}

}  // namespace

void add_read_ahead(CLI::App& app, Run& run) {
  auto options = std::make_shared<ReadAheadOptions>();
  CLI::App& command = *app.add_subcommand("read-ahead", "What Python's weightmap.prefetch() runs");
  command.group("");
  command.add_option("--for", options->process, "The process that starts")->required();
  command.add_option("--model", options->start.models, "A file, a folder, or org/name")
      ->allow_extra_args(false);
  command.add_flag("-v,--verbose", options->start.speaks, "Say what was read");
  command.add_flag("--json", options->json, "Print an error as JSON");
  command.add_option("COMMAND", options->command, "What the process runs")->required();
  command.callback([options, &run] { run = [options](Output&) { return read_ahead(*options); }; });
}

}  // namespace weightmap::cli
