#include "tools/snapshot/snapshot_start.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>

#include "runtime/base/try.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/run/start_companion.hpp"
#include "tools/snapshot/ability.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/image_files.hpp"
#include "tools/snapshot/meeting_point.hpp"
#include "tools/snapshot/namespaces.hpp"
#include "tools/snapshot/snapshot_folder.hpp"
#include "tools/snapshot/sockets.hpp"
#include "tools/snapshot/supervised_command.hpp"
#include "tools/snapshot/surroundings.hpp"
#include "tools/snapshot/used_files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr int niceness = 10;  // of reading and learning beside a command

void say(const std::string& text) { std::fprintf(stderr, "weightmap run: %s\n", text.c_str()); }

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class SnapshotStart {
 public:
  SnapshotStart(const start::StartOptions& options, const start::StartCommand& what,
                const SnapshotFolder& folder, fs::path criu, SupervisedCommand& command)
      : options_(options),
        what_(what),
        folder_(folder),
        criu_(std::move(criu)),
        command_(command),
        key_(start::start_key(what.program, what.words, start::KeyOf::all_words)) {}

  int run() {
    if (const std::optional<Manifest> manifest = usable_manifest())
      run_restored(*manifest);
    else
      run_anew();
    return command_.wait();
  }

 private:
  std::optional<Manifest> usable_manifest() const {
    if (options_.learns_anew) folder_.remove(key_);
    Result<Manifest> manifest = folder_.manifest(key_);
    if (!manifest && manifest.error().code == ErrorCode::not_found) return std::nullopt;
    const std::string reason = manifest ? reason_against(*manifest) : to_string(manifest.error());
    if (reason.empty()) return std::move(*manifest);
    refuse(reason);
    return std::nullopt;
  }

  std::string reason_against(const Manifest& manifest) const {
    if (manifest.meeting_point != folder_.meeting_point().native())
      return "its processes look for " + printable(manifest.meeting_point);
    const std::string change = change_since(manifest);
    if (!change.empty()) return change;
    return first_difference(manifest.environment,
                            hashed_environment(environ, manifest.new_variables));
  }

  void refuse(const std::string& reason) const {
    say("the snapshot is not used: " + reason);
    folder_.remove(key_);
  }

  // --- with a snapshot ---

  void run_restored(const Manifest& manifest) {
    start::CompanionTask task = start::task_for(options_, what_, fs::path());
    task.learns = false;
    task.remarks.clear();  // of a plan that is not looked for
    task.plan = folder_.plan(key_);
    task.restore = &progress_;
    std::jthread deciding;
    start::accompany(command_.supervisor(), task,
                     [&] { deciding = in_thread([&] { restore_or_start(manifest); }); });
    if (deciding.joinable()) deciding.join();
  }

  // Works here if the system has no thread for it: nothing of a start is read or drawn meanwhile.
  template <class Work>
  static std::jthread in_thread(const Work& work) {
    try {
      return std::jthread(work);
    } catch (const std::system_error&) {
      work();
      return {};
    }
  }

  // Compares the memory of the processes while criu restores it, so that it is read once, and lets
  // them go on when all of it is good.
  void restore_or_start(const Manifest& manifest) {
    const fs::path image = folder_.image_of(key_);
    const Result<ImageCheck> check = ImageCheck::open(image, manifest.image);
    if (!check) return start_without(check.error());
    if (const Result<void> good = check->compare_description(); !good)
      return start_without(good.error());
    const Descriptor lock = folder_.lock_for_restore(key_);
    if (const std::string reason = reason_to_wait(manifest); !reason.empty()) {
      say("the snapshot is not restored: " + reason);
      command_.start();
      return command_.give_up_dump();
    }
    command_.restore(image, manifest);
    if (const Result<void> good = check->compare_pages(); !good) return start_without(good.error());
    progress_.checked = now();
    command_.go_on();
    const std::optional<Report> outcome = command_.outcome();
    if (outcome && outcome->kind == Report::restored) progress_.restored = now();
    if (outcome && outcome->kind == Report::not_restored && outcome->is_lasting)
      folder_.remove(key_);
  }

  void start_without(const Error& damage) {
    command_.start();  // which ends what is being restored from the image first
    refuse(to_string(damage));
    command_.give_up_dump();
  }

  // Why this start cannot be restored, and a later one may be.
  static std::string reason_to_wait(const Manifest& manifest) {
    if (const std::string address = first_taken(manifest.listeners); !address.empty())
      return address + " is in use";
    const std::string file = first_used(manifest.socket_files);
    return file.empty() ? std::string() : printable(file) + " is in use";
  }

  static start::RestoreProgress::Clock::rep now() {
    return start::RestoreProgress::Clock::now().time_since_epoch().count();
  }

  // --- without one ---

  void run_anew() {
    links_ = named_links({what_.words.begin(), what_.words.end()}, environ);
    const std::string key = what_.key();
    start::CompanionTask task =
        start::task_for(options_, what_, start::plan_path_of(options_, key));
    const Result<std::string> version = criu_version(criu_);
    if (version) {
      task.learns = true;
      task.when_over = [&](const start::FinishedStart& start) { make(start, *version); };
      task.over_file = call_in(folder_.meeting_point(), command_.supervisor());
    } else {
      say("no snapshot is made: " + version.error().message);
    }
    ::setpriority(PRIO_PROCESS, 0, niceness);
    start::accompany(command_.supervisor(), task, [this] { command_.start(); });
    if (!has_dumped_) command_.give_up_dump();
  }

  void make(const start::FinishedStart& start, const std::string& version) {
    const auto began = std::chrono::steady_clock::now();
    const Result<std::uint64_t> made = try_to_make(start, version);
    if (!made) return say("no snapshot is made: " + to_string(made.error()));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
    if (options_.speaks)
      say(fmt::format("made a snapshot of {} in {:.1f} s", human_bytes(*made), time.count()));
  }

  // Returns the bytes of the image.
  Result<std::uint64_t> try_to_make(const start::FinishedStart& start, const std::string& version) {
    if (!start.unseen.empty())
      return failure(ErrorCode::io, start.unseen + ", so that nothing would tell when they change");
    UsedPaths paths = paths_in_use(start.processes);
    paths.read.insert(start.paths.begin(), start.paths.end());
    paths.read.insert(criu_.native());
    paths.written.insert(start.written.begin(), start.written.end());
    Manifest manifest;
    manifest.links = links_;
    if (const std::string moved = first_moved(links_); !moved.empty())
      return failure(ErrorCode::io, moved + " when the command started");
    TRY_ASSIGN(manifest.files, states_of(paths, start.began_ns));
    std::error_code none;
    const std::vector<Socket> sockets = sockets_of(start.processes);
    manifest.listeners = listeners_among(sockets);
    manifest.socket_files = socket_files_of(start.processes);
    manifest.keeps_connections = have_inner_connection(sockets);
    manifest.criu = version;
    const fs::path call = call_in(folder_.meeting_point(), command_.supervisor());
    manifest.is_made_here = fs::exists(call, none);
    if (manifest.is_made_here) {
      TRY_ASSIGN(manifest.new_variables, new_variables_of(call));
    }
    TRY_ASSIGN(const SnapshotFolder::Unfinished unfinished, folder_.begin(key_));
    const Result<Report> dumped = dump_into(unfinished.image, manifest);
    Result<std::uint64_t> made = dumped ? finish(manifest, *dumped, start, paths, unfinished.image)
                                        : tl::unexpected<Error>(dumped.error());
    if (!made) folder_.discard(key_);
    return made;
  }

  Result<Report> dump_into(const fs::path& image, const Manifest& manifest) {
    has_dumped_ = true;
    return command_.dump(image, manifest);
  }

  // Completes what was dumped. Returns the bytes of the image.
  Result<std::uint64_t> finish(Manifest& manifest, const Report& dumped,
                               const start::FinishedStart& start, const UsedPaths& paths,
                               const fs::path& image) const {
    if (const std::string change = first_change(manifest.files); !change.empty())
      return failure(ErrorCode::io, change + " meanwhile");
    manifest.key = key_;
    manifest.meeting_point = folder_.meeting_point().native();
    manifest.command.assign(what_.words.begin(), what_.words.end());
    manifest.made_ns = now_ns();
    manifest.machine = this_machine();
    manifest.root = command_id;
    manifest.pipes = dumped.pipes;
    manifest.environment = hashed_environment(environ, manifest.new_variables);
    TRY(make_private(image));
    TRY_ASSIGN(manifest.image, checksum_files(image));
    TRY(folder_.commit(manifest, mapped_part(start.plan, paths)));
    return manifest.image_bytes();
  }

  // What a restored process needs of what a start reads: what is mapped.
  static start::StartPlan mapped_part(const start::StartPlan& whole, const UsedPaths& paths) {
    start::StartPlan plan = whole;
    std::erase_if(plan.files, [&paths](const start::PlannedFile& file) {
      return !paths.mapped.contains(file.path);
    });
    return plan;
  }

  const start::StartOptions& options_;
  const start::StartCommand& what_;
  const SnapshotFolder& folder_;
  fs::path criu_;
  SupervisedCommand& command_;
  std::string key_;
  std::vector<NamedLink> links_;  // as they were before the start
  bool has_dumped_ = false;
  start::RestoreProgress progress_;
};

}  // namespace

std::string change_since(const Manifest& manifest) {
  const Machine now = this_machine();
  if (manifest.machine.kernel != now.kernel)
    return "it is of the kernel " + printable(manifest.machine.kernel) + ", this is " + now.kernel;
  if (manifest.machine.processor != now.processor)
    return "it is of the processor " + printable(manifest.machine.processor) + ", this is " +
           now.processor;
  const std::string moved = first_moved(manifest.links);
  return moved.empty() ? first_change(manifest.files) : moved;
}

std::optional<int> run_with_snapshot(const start::StartOptions& options, const fs::path& path,
                                     const start::StartCommand& what) {
  const auto without = [](const Error& error) -> std::optional<int> {
    say("without a snapshot: " + to_string(error));
    return std::nullopt;
  };
  const fs::path criu = find_criu();
  if (criu.empty()) return without(criu_version(criu).error());
  if (const std::string missing = missing_permission(); !missing.empty())
    return without({ErrorCode::io, missing, Error::no_offset, {}});
  const Result<SnapshotFolder> folder = SnapshotFolder::open(path, true);
  if (!folder) return without(folder.error());
  Result<SupervisedCommand> command = SupervisedCommand::create(
      {{what.words.begin(), what.words.end()}, criu, folder->meeting_point()});
  if (!command) return without(command.error());
  return SnapshotStart(options, what, *folder, criu, *command).run();
}

}  // namespace weightmap::cli::snapshot
