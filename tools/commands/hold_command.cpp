#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/hold/hold_request.hpp"
#include "tools/hold/hold_server.hpp"
#include "tools/hold/hold_socket.hpp"
#include "tools/hold/keeper.hpp"
#include "tools/hold/metrics_file.hpp"
#include "tools/hold/service_manager.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The wait is short during a warm-up, so that its end is noticed soon.
constexpr milliseconds short_wait{10};
constexpr milliseconds long_wait{1000};

struct HoldCommand {
  std::vector<std::string> files;  // or URLs
  std::string name;
  RemoteOptions remote;
  hold::WantedDigests wanted;
  std::string socket;
  std::string metrics;
  double interval = 5;
  bool no_lock = false;
  bool json = false;
  bool status = false;
  std::string release;
  std::string add;
};

std::string size_text(const Json& bytes) {
  return bytes.is_number() ? human_bytes(bytes.get<std::uint64_t>()) : "?";
}

std::string state_text(const Json& file) {
  std::string text = file["state"].get<std::string>();
  const std::uint64_t left_out = file["bytes_left_out"].get<std::uint64_t>();
  const std::uint64_t all = file["file_bytes"].get<std::uint64_t>();
  if (!file["locked"].get<bool>())
    text += ", not locked";
  else
    text +=
        left_out == 0 ? ", locked" : ", " + human_bytes(all - std::min(all, left_out)) + " locked";
  if (left_out > 0) text += ", " + human_bytes(left_out) + " do not fit";
  for (const char* const problem : {"problem", "url_problem"})
    if (const auto found = file.find(problem); found != file.end() && found->is_string())
      text += "; " + printable(found->get<std::string>());
  return text;
}

// In its present version as a whole, or, while a new one comes, in the one before.
bool is_held(const Json& file) {
  return file["state"] != "fetching" && file["state"] != "warming" && file["problem"].is_null() &&
         file["bytes_left_out"] == 0;
}

void print_status(Output& out, const Json& status, bool json) {
  if (json) return out.write(to_text(status) + "\n");
  const Json& files = status["files"];
  const auto row = [&files](std::size_t i) {
    const Json& file = files[i];
    return std::vector<std::string>{printable(file["file"].get<std::string>()),
                                    size_text(file["file_bytes"]),
                                    size_text(file["resident_bytes"]), state_text(file)};
  };
  print_columns(out, {},
                {{"FILE"}, {"SIZE", Column::right}, {"RESIDENT", Column::right}, {"STATE"}},
                files.size(), row);
  out.write(count(files.size(), "file") + ", " + size_text(status["resident_bytes"]) +
            " resident, held by process " + std::to_string(status["pid"].get<std::int64_t>()) +
            "\n");
}

// The metrics file, if requested, and whether its last update failed.
class Metrics {
 public:
  static Result<Metrics> at(const std::string& path) {
    if (path.empty()) return Metrics(std::nullopt);
    TRY_ASSIGN(hold::MetricsFile file, hold::MetricsFile::at(path));
    return Metrics(std::move(file));
  }

  bool are_wanted() const noexcept { return file_.has_value(); }

  Result<void> write(const hold::Keeper& keeper) const {
    return file_ ? file_->write(keeper.describe()) : Result<void>{};
  }
  // Reports a failure once.
  void update(const hold::Keeper& keeper) {
    const Result<void> written = write(keeper);
    const std::string problem = written ? "" : to_string(written.error());
    if (!problem.empty() && problem != told_problem_) say(problem + "; the metrics are old");
    told_problem_ = problem;
  }

 private:
  explicit Metrics(std::optional<hold::MetricsFile> file) : file_(std::move(file)) {}

  std::optional<hold::MetricsFile> file_;
  std::string told_problem_;
};

// The daemon's work between two rounds of its clients.
class Rounds {
 public:
  Rounds(hold::Keeper& keeper, Metrics& metrics, Clock::duration interval)
      : keeper_(keeper), metrics_(metrics), interval_(interval) {}

  // Returns true once, when all files of the command line are in memory; fails if one of them never
  // will be.
  Result<bool> advance() {
    keeper_.advance();
    if (!was_ready_ && !interrupted()) TRY(keeper_.check_start());
    keeper_.tell();
    const Clock::time_point now = Clock::now();
    const bool looks = now >= next_look_;
    if (looks) {
      keeper_.look(metrics_.are_wanted());
      next_look_ = now + interval_;
    }
    if (looks || keeper_.changes() != seen_changes_) metrics_.update(keeper_);
    seen_changes_ = keeper_.changes();
    tell(now);
    return !std::exchange(was_ready_, is_ready_) && is_ready_;
  }

  milliseconds wait() const {
    if (keeper_.is_warming()) return short_wait;
    Clock::duration wait = next_look_ - Clock::now();
    if (manager_.alive_interval())
      wait = std::min<Clock::duration>(wait, *manager_.alive_interval() / 2);
    return std::clamp(std::chrono::ceil<milliseconds>(wait), milliseconds(0), long_wait);
  }

  void stop() const { manager_.stopping(); }

 private:
  void tell(Clock::time_point now) {
    const bool reloads = is_ready_ && keeper_.is_reloading();
    if (reloads && !reloads_) manager_.reloading("reloading what was replaced");
    const bool is_new = !is_ready_ && !keeper_.is_warming();
    if (is_new || (reloads_ && !reloads)) manager_.ready("holding " + keeper_.summary());
    is_ready_ = is_ready_ || is_new;
    reloads_ = reloads;
    if (!manager_.alive_interval() || now < next_alive_) return;
    manager_.alive();
    next_alive_ = now + *manager_.alive_interval();
  }

  hold::Keeper& keeper_;
  Metrics& metrics_;
  hold::ServiceManager manager_;
  Clock::duration interval_;
  Clock::time_point next_look_ = Clock::now() + interval_;
  Clock::time_point next_alive_{};
  std::uint64_t seen_changes_ = 0;
  bool is_ready_ = false;
  bool was_ready_ = false;
  bool reloads_ = false;
};

Result<std::filesystem::path> socket_path(const HoldCommand& options) {
  if (!options.socket.empty()) return std::filesystem::path(options.socket);
  return hold::default_socket_path();
}

Result<void> hold_path(hold::Keeper& keeper, const std::string& path) {
  Result<Json> held = keeper.hold(std::filesystem::absolute(path).lexically_normal());
  if (held) return {};
  if (held.error().file.empty()) held.error().file = printable(path);
  return tl::unexpected<Error>(held.error());
}

Result<void> hold_all(hold::Keeper& keeper, const HoldCommand& options) {
  for (const std::string& file : options.files) {
    if (names_remote_file(file))
      TRY(keeper.hold_url(file, options.name, true));
    else
      TRY(hold_path(keeper, file));
  }
  return {};
}

void check_urls(const HoldCommand& options) {
  for (const std::string& file : options.files)
    if (names_remote_file(file))
      if (const auto source = open_remote(file, options.remote); !source)
        throw CLI::ValidationError("FILE", source.error().message);
  const std::string named = options.files.size() == 1 ? options.files.front() : options.add;
  if (options.wanted.sums.contains("") && options.files.size() != 1)
    throw CLI::ValidationError("--sha256", "is for one FILE; --sums has a line for each");
  if (!options.name.empty() && !names_remote_file(named))
    throw CLI::ValidationError("--name", "is for one URL");
}

Result<int> keep(Output& out, const HoldCommand& options, const std::filesystem::path& path) {
  const Interruptible interruptible;
  TRY_ASSIGN(const hold::HoldSocket socket, hold::HoldSocket::listen(path));
  TRY_ASSIGN(Metrics metrics, Metrics::at(options.metrics));
  hold::Keeper keeper(!options.no_lock, options.remote, options.wanted, say);
  TRY(hold_all(keeper, options));
  keeper.note_start();
  TRY(metrics.write(keeper));
  hold::HoldServer server(socket,
                          [&keeper](std::string_view line) { return hold::answer(keeper, line); });
  Rounds rounds(
      keeper, metrics,
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval)));
  while (!interrupted()) {
    TRY_ASSIGN(const bool becomes_ready, rounds.advance());
    if (becomes_ready) {
      print_status(out, keeper.describe(), options.json);
      if (Result<void> written = out.finish(); !written)
        return tl::unexpected<Error>(written.error());
    }
    server.serve_for(rounds.wait());
  }
  rounds.stop();
  return exit_good;
}

Result<int> ask_keeper(Output& out, const HoldCommand& options, const std::filesystem::path& path) {
  const std::string& file = options.add.empty() ? options.release : options.add;
  const char* const operation =
      options.status ? "status" : (options.add.empty() ? "release" : "hold");
  TRY_ASSIGN(
      const Json answer,
      hold::ask(path, hold::make_request(operation, options.status ? "" : file, options.name)));
  if (options.status) {
    print_status(out, answer, options.json);
    const Json& files = answer["files"];
    return std::all_of(files.begin(), files.end(), is_held) ? exit_good : exit_failed;
  }
  if (options.json)
    out.write(to_text(answer) + "\n");
  else
    out.write(printable(answer["file"].get<std::string>()) + ": " +
              (options.add.empty() ? "released" : state_text(answer)) + "\n");
  return exit_good;
}

Result<int> run_hold(Output& out, const HoldCommand& options) {
  TRY_ASSIGN(const std::filesystem::path path, socket_path(options));
  if (options.status || !options.add.empty() || !options.release.empty())
    return ask_keeper(out, options, path);
  return keep(out, options, path);
}

}  // namespace

void add_hold(CLI::App& app, Run& run) {
  auto options = std::make_shared<HoldCommand>();
  CLI::App& command =
      *app.add_subcommand("hold", "Keep files in memory until this is interrupted (Ctrl-C)");
  CLI::Option* const files =
      command
          .add_option("FILE", options->files,
                      "Checkpoints, or URLs of them; more may be added later")
          ->type_name("");
  command
      .add_option("--socket", options->socket,
                  "Where to be asked, or to ask; hold.sock in the runtime directory unless given")
      ->type_name("PATH");
  command
      .add_option("--interval", options->interval,
                  "Look for replaced files every so many seconds; 5 unless given")
      ->check(CLI::Range(0.01, 86400.0))
      ->type_name("S");
  CLI::Option* const metrics =
      command
          .add_option("--metrics", options->metrics,
                      "Write what is held to FILE for Prometheus, at each look and change")
          ->type_name("FILE");
  CLI::Option* const name =
      command
          .add_option("--name", options->name,
                      "Of a URL: hold it as /dev/shm/NAME; its file name unless given")
          ->type_name("NAME");
  add_remote_options(command, options->remote);
  add_sum_options(command, options->wanted.sums, options->wanted.are_required, "");
  command.add_flag("--no-lock", options->no_lock, "Do not lock: touch again at each look");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  CLI::Option* const status =
      command.add_flag("--status", options->status, "Ask a running daemon what it holds");
  CLI::Option* const add =
      command
          .add_option("--add", options->add, "Ask a running daemon to hold one more file, or URL")
          ->type_name("FILE");
  CLI::Option* const release =
      command.add_option("--release", options->release, "Ask a running daemon to release a file")
          ->type_name("FILE");
  status->excludes(files)->excludes(add)->excludes(release);
  add->excludes(files)->excludes(release);
  release->excludes(files);
  metrics->excludes(status)->excludes(add)->excludes(release);
  name->excludes(status)->excludes(release);
  for (const char* const option : {"--connections", "--header", "--signer", "--sha256", "--sums",
                                   "--require-digest"})  // the daemon has its own
    for (CLI::Option* const query : {status, add, release}) query->excludes(option);
  command.footer(
      "What is held is locked in memory where the system lets us (ulimit -l), and a file that is\n"
      "replaced is held in its new version once that is in memory.\n"
      "A URL is fetched into shared memory, and again when the store has another version.\n"
      "Examples:\n"
      "  weightmap hold model.pt tokenizer.pt\n"
      "  weightmap hold --metrics /var/lib/node_exporter/weightmap.prom model.pt\n"
      "  weightmap hold --name model.pt https://host/models/model.pt\n"
      "  weightmap hold --status\n"
      "  weightmap hold --add other.pt\n"
      "  weightmap hold --add s3://bucket/third.safetensors");
  command.callback([options, &run] {
    check_urls(*options);
    run = [options](Output& out) { return run_hold(out, *options); };
  });
}

}  // namespace weightmap::cli
