// Serves rows of an embedding from several processes that share one mapped copy of a checkpoint.
//
//   serving FILE [--tensor NAME] [--workers 2] [--port 8080] [--warm]
//
//   GET /embedding?id=N                       one row
//   GET /nearest?id=N&k=K[&metric=cosine|dot] the rows most like it
//   GET /tensors                              what the checkpoint holds
//   GET /health                               which process answers, from which version of the file
//
// Prints its address. A worker that dies is replaced; a file that is replaced (by rename) is served
// from the next request on, without a pause, if it can be. SIGHUP looks at once, and again at a
// file that was refused. SIGTERM ends all.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "examples/serving/listening_sockets.hpp"
#include "examples/serving/served_model.hpp"
#include "examples/serving/signals.hpp"
#include "examples/serving/worker.hpp"
#include "examples/serving/workers.hpp"
#include "weightmap/warmer.hpp"

namespace serving {
namespace {

using weightmap::Result;

struct Arguments {
  std::string file;
  std::string tensor;
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  std::size_t workers = 2;
  bool warm = false;
};

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("file", arguments.file, "A checkpoint")->required();
  app.add_option("--tensor", arguments.tensor, "The embedding; by default the first matrix");
  app.add_option("--workers", arguments.workers, "Processes that answer")
      ->check(CLI::Range(1, 256));
  app.add_option("--port", arguments.port, "0, the default, takes a free one");
  app.add_option("--address", arguments.address, "There is no access control");
  app.add_flag("--warm", arguments.warm, "Bring the file into memory first");
}

int fail(const weightmap::Error& error) {
  std::cerr << "serving: " << to_string(error) << '\n';
  return 1;
}

Result<void> warm(const Model& model) {
  return weightmap::Warmer::start(model.checkpoint())
      .and_then([](weightmap::Warmer&& warmer) { return warmer.wait(); })
      .map([](const weightmap::WarmReport&) {});
}

// Until SIGTERM or SIGINT. The parent follows the file, too, so that workers begin with the newest.
void supervise(Workers& workers, ServedModel& model) {
  while (true) {
    workers.start_missing();
    const int signal = wait_for_signal(std::chrono::milliseconds(200));
    if (signal == SIGTERM || signal == SIGINT) return;
    if (signal == SIGHUP) {
      model.retry();
      workers.send_all(SIGHUP);
    }
    workers.bury_dead();
    model.follow();
  }
}

int serve(const Arguments& arguments) {
  auto model = Model::open(arguments.file, arguments.tensor);
  if (!model) return fail(model.error());
  if (arguments.warm)
    if (const auto warmed = warm(**model); !warmed) return fail(warmed.error());
  const auto sockets = ListeningSockets::open(arguments.address, arguments.port, arguments.workers);
  if (!sockets) return fail(sockets.error());

  ServedModel served(arguments.file, arguments.tensor, std::move(*model));
  block_signals();
  const int parent = getpid();
  Workers workers(arguments.workers, [&](std::size_t place) {
    return work(sockets->descriptors()[place], parent, served);
  });
  std::cout << "http://" << arguments.address << ':' << sockets->port() << std::endl;
  supervise(workers, served);
  return 0;
}

}  // namespace
}  // namespace serving

int main(int argc, char** argv) {
  CLI::App app("Serves rows of an embedding from processes that share one mapped checkpoint");
  serving::Arguments arguments;
  serving::describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return serving::serve(arguments);
}
