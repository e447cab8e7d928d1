#include "tools/run/start_timeline.hpp"

#include <algorithm>

namespace weightmap::cli::start {
namespace {

// Between two samples; less is no loading of weights.
constexpr std::uint64_t bytes_of_a_load = std::uint64_t{1} << 20;

// 0 if a process has taken its numbers with it.
template <class T>
T growth(T from, T to) noexcept {
  return to > from ? to - from : T{0};
}

bool loads(const StartSample& step) noexcept {
  return step.weight_bytes > 0 || step.counts.read_bytes >= bytes_of_a_load ||
         step.counts.called_bytes >= bytes_of_a_load || step.counts.file_bytes >= bytes_of_a_load;
}

class Steps {
 public:
  explicit Steps(const std::vector<StartSample>& all) noexcept : samples_(all) {}

  std::size_t last_sample() const noexcept { return samples_.size() - 1; }

  // The first sample at this time or later; the last of all if there is none.
  std::size_t first_at(double time) const noexcept {
    std::size_t at = 0;
    while (at < last_sample() && samples_[at].seconds < time) ++at;
    return at;
  }

  // The last sample at which weights were not open yet; the last of all if they never were.
  std::size_t before_weights() const noexcept {
    std::size_t at = 0;
    while (at < last_sample() && samples_[at + 1].weight_bytes == 0) ++at;
    return at;
  }

  // The end of the last step up to `end` that opened so many code files; 0 if there is none.
  std::size_t last_burst(std::size_t end, std::uint64_t files) const {
    while (end > 0 && samples_[end].code_files < samples_[end - 1].code_files + files) --end;
    return end;
  }

  std::size_t last_load(std::size_t begin) const {
    std::size_t end = last_sample();
    while (end > begin && !loads(difference(samples_[end - 1], samples_[end]))) --end;
    return end;
  }

 private:
  const std::vector<StartSample>& samples_;
};

std::vector<StartPhase> start_phases(const Steps& steps) {
  const std::size_t weights = steps.before_weights(), end = steps.last_sample();
  std::size_t code = steps.last_burst(weights, files_of_a_burst);
  if (code == 0) code = steps.last_burst(weights, 1);
  if (weights == end) return {{StartPhase::code, 0, code}, {StartPhase::work, code, end}};
  const std::size_t loaded = steps.last_load(weights);
  return {{StartPhase::code, 0, code},
          {StartPhase::model_creation, code, weights},
          {StartPhase::weights, weights, loaded},
          {StartPhase::first_use, loaded, end}};
}

std::vector<StartPhase> restore_phases(const Steps& steps, const RestoreTimes& times) {
  const std::size_t checked = steps.first_at(times.checked);
  const std::size_t restored = steps.first_at(times.restored);
  return {{StartPhase::image_check, 0, checked},
          {StartPhase::restore, checked, restored},
          {StartPhase::first_use, restored, steps.last_sample()}};
}

}  // namespace

std::string_view to_string(StartPhase::Kind kind) noexcept {
  constexpr std::string_view words[] = {"code", "model creation", "weights", "first use",
                                        "work", "image check",    "restore"};
  return words[static_cast<std::size_t>(kind)];
}

void end_at(StartTimeline& timeline, double seconds) {
  std::vector<StartSample>& samples = timeline.samples;
  samples.erase(std::find_if(samples.begin() + 1, samples.end(),
                             [seconds](const StartSample& at) { return at.seconds > seconds; }),
                samples.end());
  StartSample last = samples.back();
  last.seconds = std::max(last.seconds, seconds);
  samples.push_back(last);
}

void mark_restore(StartTimeline& timeline, const RestoreTimes& times) {
  std::vector<StartSample>& samples = timeline.samples;
  for (const double time : {times.checked, times.restored}) {
    const auto later = std::find_if(samples.begin() + 1, samples.end(),
                                    [time](const StartSample& at) { return at.seconds >= time; });
    StartSample sample = *(later - 1);
    sample.seconds = std::max(time, sample.seconds);
    samples.insert(later, sample);
  }
  timeline.restore = times;
}

std::vector<StartPhase> phases_of(const StartTimeline& timeline) {
  if (timeline.samples.empty()) return {};
  const Steps steps(timeline.samples);
  std::vector<StartPhase> phases =
      timeline.restore ? restore_phases(steps, *timeline.restore) : start_phases(steps);
  std::erase_if(phases, [](const StartPhase& phase) { return phase.last <= phase.first; });
  return phases;
}

StartSample difference(const StartSample& from, const StartSample& to) {
  const ProcessCounts &a = from.counts, &b = to.counts;
  StartSample step;
  step.seconds = to.seconds - from.seconds;
  step.counts.major_faults = growth(a.major_faults, b.major_faults);
  step.counts.minor_faults = growth(a.minor_faults, b.minor_faults);
  step.counts.read_bytes = growth(a.read_bytes, b.read_bytes);
  step.counts.called_bytes = growth(a.called_bytes, b.called_bytes);
  step.counts.user_seconds = growth(a.user_seconds, b.user_seconds);
  step.counts.system_seconds = growth(a.system_seconds, b.system_seconds);
  if (a.disk_wait && b.disk_wait) step.counts.disk_wait = growth(*a.disk_wait, *b.disk_wait);
  step.counts.anonymous_bytes = growth(a.anonymous_bytes, b.anonymous_bytes);
  step.counts.file_bytes = growth(a.file_bytes, b.file_bytes);
  step.reader_bytes = growth(from.reader_bytes, to.reader_bytes);
  step.code_files = growth(from.code_files, to.code_files);
  step.weight_bytes = growth(from.weight_bytes, to.weight_bytes);
  return step;
}

}  // namespace weightmap::cli::start
