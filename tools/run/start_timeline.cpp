#include "tools/run/start_timeline.hpp"

#include <algorithm>

namespace weightmap::cli::start {
namespace {

// Between two samples: fewer code files are stragglers of an import, less is no loading of weights.
constexpr std::uint64_t files_of_a_burst = 10;
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

}  // namespace

std::string_view to_string(StartPhase::Kind kind) noexcept {
  switch (kind) {
    case StartPhase::code:
      return "code";
    case StartPhase::model_creation:
      return "model creation";
    case StartPhase::weights:
      return "weights";
    case StartPhase::first_use:
      return "first use";
    case StartPhase::work:
      return "work";
  }
  return "";
}

std::vector<StartPhase> phases_of(const StartTimeline& timeline) {
  std::vector<StartPhase> phases;
  if (timeline.samples.empty()) return phases;
  const auto add = [&](StartPhase::Kind kind, std::size_t first, std::size_t last) {
    if (last > first) phases.push_back({kind, first, last});
  };
  const Steps steps(timeline.samples);
  const std::size_t weights = steps.before_weights(), end = steps.last_sample();
  std::size_t code = steps.last_burst(weights, files_of_a_burst);
  if (code == 0) code = steps.last_burst(weights, 1);
  add(StartPhase::code, 0, code);
  if (weights == end) {
    add(StartPhase::work, code, end);
    return phases;
  }
  const std::size_t loaded = steps.last_load(weights);
  add(StartPhase::model_creation, code, weights);
  add(StartPhase::weights, weights, loaded);
  add(StartPhase::first_use, loaded, end);
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
