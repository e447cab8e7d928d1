#include "tools/run/start_companion.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <future>
#include <system_error>
#include <thread>

#include "tools/run/plan_store.hpp"
#include "tools/run/start_learner.hpp"
#include "tools/run/start_reader.hpp"
#include "tools/run/start_recorder.hpp"
#include "tools/run/timeline_report.hpp"
#include "tools/run/weights_reader.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

using Clock = std::chrono::steady_clock;
using Models = std::vector<std::filesystem::path>;

constexpr int look_every = 50;      // milliseconds
constexpr int sample_every = 2;     // looks
constexpr int readiness_every = 4;  // looks
// Seconds of a processor between two looks at the readiness: a service that waits uses fewer.
constexpr double least_burst = 0.05;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

class Companion {
 public:
  Companion(pid_t command, const CompanionTask& task)
      : task_(task), processes_(command), readiness_(task.ready) {
    if (task.learns)
      learner_.emplace(processes_, weights(),
                       task.when_over ? OpenedFiles::of_namespace(command) : OpenedFiles(places()));
    if (task.learns) mark_ = LearningMark(task.plan_path, command);
    if (needs_timeline()) recorder_.emplace(places());
  }

  void run() {
    for (const std::string& remark : task_.remarks) say(remark);
    std::jthread reading = begin_reading();
    bool has_ended = false;
    while (!has_ended && !is_done()) {
      has_ended = processes_.wait_for_end(look_every);
      if (!has_ended) look();
    }
    stopped_ = has_ended || task_.when_over;
    if (reading.joinable()) reading.join();
    if (learner_)
      learn();
    else if (is_outdated())
      forget();
    if (task_.speaks) report(has_ended);
    if (recorder_) show_timeline();
  }

 private:
  std::vector<std::string> weights() const {
    std::vector<std::string> paths;
    for (const std::filesystem::path& model : task_.models) paths.push_back(model.native());
    return paths;
  }

  std::vector<std::string> places() const {
    std::vector<std::string> others = weights();
    others.push_back("/proc/" + std::to_string(processes_.root()) + "/exe");
    return likely_places(others);
  }

  bool needs_timeline() const noexcept { return task_.speaks || !task_.timeline.empty(); }

  bool is_done() const noexcept {
    const bool needs_the_start = learner_ || recorder_;
    return (has_read_ || task_.when_over) && (is_over_ || !needs_the_start);
  }

  void look() {
    if (learner_) learner_->look();
    if (is_over_ || (!learner_ && !recorder_)) return;
    ++looks_;
    if (looks_ % readiness_every == 0) processes_.update();
    if (recorder_ && looks_ % sample_every == 0) recorder_->look(processes_);
    if (looks_ % readiness_every == 0) look_at_readiness();
  }

  void look_at_readiness() {
    const std::uint64_t files = learner_ ? learner_->activity() : 0;
    const std::uint64_t activity =
        recorder_ ? recorder_->activity() : processes_.counts().read_bytes;
    std::error_code none;
    is_over_ = readiness_.is_over(activity + files + bursts()) ||
               (!task_.over_file.empty() && std::filesystem::exists(task_.over_file, none));
    over_at_ = readiness_.end();
  }

  // Grows while a command that will be dumped computes: it may be at work without any file.
  std::uint64_t bursts() {
    if (!task_.when_over) return 0;
    const ProcessCounts counts = processes_.counts();
    const double computed = counts.user_seconds + counts.system_seconds;
    if (computed - computed_seconds_ > least_burst) ++bursts_;
    computed_seconds_ = computed;
    return bursts_;
  }

  std::jthread begin_reading() {
    try {
      return std::jthread([this] { read_guarded(); });
    } catch (const std::system_error& refusal) {
      say(std::string("nothing is read: cannot start a thread: ") + refusal.what());
      has_read_ = true;
      return {};
    }
  }

  void read_guarded() {
    try {
      read();
    } catch (const std::exception& error) {
      say(std::string("the reading ended early: ") + error.what());
    }
    has_read_ = true;
  }

  // Weights come behind the code, which the command needs first.
  void read() {
    Models behind = task_.models, beside;
    if (task_.plan)
      std::erase_if(behind, [&](const std::filesystem::path& model) {
        const bool is_beside = comes_another_way(model, *task_.plan);
        if (is_beside) beside.push_back(model);
        return is_beside;
      });
    std::future<WeightsRead> others =
        std::async(std::launch::async, [&] { return read_all(beside); });
    if (task_.plan) start_ = read_start(*task_.plan, stopped_);
    start_seconds_ = seconds_between(begin_, Clock::now());
    for (const WeightsRead& read : {read_all(behind), others.get()}) {
      weights_.bytes += read.bytes;
      weights_.all_bytes += read.all_bytes;
    }
    weights_seconds_ = seconds_between(begin_, Clock::now());
  }

  WeightsRead read_all(const Models& models) const {
    WeightsRead all;
    for (const std::filesystem::path& model : models) {
      if (stopped_) break;
      const WeightsRead read = read_weights(model, stopped_);
      all.bytes += read.bytes;
      all.all_bytes += read.all_bytes;
      if (!read.trouble.empty()) say(read.trouble);
    }
    return all;
  }

  // More than a tenth of the plan's files are other ones by now.
  bool is_outdated() const {
    return task_.plan &&
           (start_.files_changed + start_.files_missing) * 10 > task_.plan->files.size();
  }

  // Has the next start learned anew.
  void forget() {
    if (task_.is_plan_given) return say("much of the plan has changed; --learn makes a new one");
    std::error_code error;
    std::filesystem::remove(task_.plan_path, error);
    if (!error) say("much of the plan has changed; the next start is learned");
  }

  void learn() {
    StartPlan plan = learner_->plan(task_.key);
    if (task_.when_over && is_over_ && !readiness_.gave_up()) {
      processes_.update();
      task_.when_over({processes_, plan, learner_->paths(), learner_->unseen(), learner_->written(),
                       learner_->began_ns()});
    }
    if (plan.files.empty()) return say("nothing was learned of this start");
    if (const Result<void> saved = save_plan(plan, task_.plan_path); !saved)
      return say(to_string(saved.error()));
    say(fmt::format("learned {}, {}, for the next start", count(plan.files.size(), "file"),
                    human_bytes(plan.planned_bytes())));
  }

  void report(bool has_ended) {
    if (const std::optional<RestoreTimes> times = restore_times())
      say(fmt::format("the image was read and compared after {:.2f} s, and restored after {:.2f} s",
                      times->checked, times->restored));
    if (start_.was_cached) {
      say("the start was cached, as far as a sample tells");
    } else if (task_.plan) {
      say(fmt::format("read {} of the start, {}, in the first {:.1f} s{}",
                      count(start_.files_read, "file"), human_bytes(start_.bytes), start_seconds_,
                      start_.ran_out_of_memory ? "; then memory was short" : ""));
      if (start_.files_changed + start_.files_missing > 0)
        say(fmt::format("left out {} changed and {} missing since they were learned",
                        start_.files_changed, start_.files_missing));
    }
    if (weights_.all_bytes > 0)
      say(fmt::format("read {} of {} of weights until {:.1f} s", human_bytes(weights_.bytes),
                      human_bytes(weights_.all_bytes), weights_seconds_));
    const ProcessCounts counts = recorder_->last().counts;
    say(fmt::format(
        "the command {} after {:.1f} s; it waited for the disk in {} major faults{}",
        has_ended ? "ended" : "had started",
        seconds_between(begin_, has_ended ? Clock::now() : over_at_), counts.major_faults,
        counts.disk_wait ? fmt::format(", {:.2f} s", *counts.disk_wait)
                         : std::string(" (kernel.task_delayacct=1 would tell how long)")));
  }

  // None if it was not restored.
  std::optional<RestoreTimes> restore_times() const {
    if (task_.restore == nullptr || task_.restore->restored == 0) return std::nullopt;
    const auto since_begin = [this](Clock::rep time) {
      return seconds_between(begin_, Clock::time_point(Clock::duration(time)));
    };
    return RestoreTimes{since_begin(task_.restore->checked), since_begin(task_.restore->restored)};
  }

  void show_timeline() const {
    StartTimeline timeline =
        recorder_->timeline(task_.program, is_over_ ? over_at_ : Clock::now(), !is_over_);
    if (const std::optional<RestoreTimes> times = restore_times()) mark_restore(timeline, *times);
    for (const std::string& line : timeline_lines(timeline)) say(line);
    if (task_.timeline.empty()) return;
    const Result<void> written = write_timeline(timeline, task_.timeline);
    if (!written) say_always(to_string(written.error()));
  }

  void say(const std::string& text) const {
    if (task_.speaks) say_always(text);
  }

  static void say_always(const std::string& text) {
    std::fprintf(stderr, "weightmap run: %s\n", text.c_str());
  }

  const CompanionTask& task_;
  const Clock::time_point begin_ = Clock::now();
  ProcessTree processes_;
  Readiness readiness_;
  std::optional<StartLearner> learner_;
  LearningMark mark_;
  std::optional<StartRecorder> recorder_;
  unsigned looks_ = 0;
  double computed_seconds_ = 0;
  std::uint64_t bursts_ = 0;
  bool is_over_ = false;
  Clock::time_point over_at_ = begin_;
  std::atomic<bool> stopped_{false}, has_read_{false};
  // Written by the reading thread before has_read_, or before it is joined.
  ReadCounts start_;
  WeightsRead weights_;
  double start_seconds_ = 0, weights_seconds_ = 0;
};

}  // namespace

void accompany(pid_t command, const CompanionTask& task, const std::function<void()>& go_on) {
  Companion companion(command, task);
  go_on();
  companion.run();
}

}  // namespace weightmap::cli::start
