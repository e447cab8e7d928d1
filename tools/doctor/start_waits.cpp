#include "tools/doctor/start_waits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "tools/doctor/findings.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

using start::StartPhase;
using start::StartSample;
using start::StartTimeline;

struct KindText {
  StartWait::Kind kind;
  std::string_view name, waited_for, advice;  // {} in the advice: the program
};

constexpr std::array<KindText, 8> texts = {{
    {StartWait::code_disk, "code_disk", "the disk, for code and small files",
     "`weightmap run -- {} ...` learns the first time what the start reads, and reads it ahead "
     "from "
     "then on."},
    {StartWait::code_work, "code_work", "processors, for imports",
     "Import less, or later (`--imports` names what costs most), and start further workers as "
     "forks of a process that has imported."},
    {StartWait::model_work, "model_work", "processors, to make the model",
     "Make the model without values, on torch's meta device, and map its weights into it, as "
     "weightmap.transformers.load() does."},
    {StartWait::weights_disk, "weights_disk", "the disk, for weights",
     "`weightmap run -- {} ...` reads them from the first moment on, beside the imports, and "
     "`weightmap hold MODEL` keeps them in memory between two starts."},
    {StartWait::first_touch, "first_touch", "memory that is touched for the first time",
     "Map the weights instead of copying them into fresh memory: weightmap's loaders do so, and "
     "others with safetensors, which `weightmap convert` makes of a .bin."},
    {StartWait::weights_work, "weights_work", "processors, to load the weights",
     "Save the weights in the type in which they are used, as safetensors (`weightmap convert`); "
     "`weightmap doctor MODEL` tells what else makes loading them slow."},
    {StartWait::use_work, "use_work", "processors, in work of its own",
     "Nothing that is read ahead makes this shorter: it is a first computation, or a compilation "
     "whose result the program may be able to keep."},
    {StartWait::other, "other", "something else than its own work and the disk",
     "Look at what it waits for: processors that others use, a network, a device, another process; "
     "if it was ready before, `--ready` says when."},
}};

// Instead of the above where the weights are safetensors or GGUF already.
constexpr std::string_view touching_mapped =
    "Use a loader that maps the weights instead of copying them into fresh memory, as weightmap's "
    "and that of safetensors do.";
constexpr std::string_view loading_mapped =
    "The weights are safetensors or GGUF already; `weightmap doctor --dtype TYPE MODEL` tells "
    "whether they are stored in the type in which they are used, and `--imports` what is imported "
    "after they are opened.";

const KindText& text_of(StartWait::Kind kind) noexcept { return texts[kind]; }

std::string_view advice_for(StartWait::Kind kind, bool weights_can_be_mapped) noexcept {
  if (weights_can_be_mapped && kind == StartWait::first_touch) return touching_mapped;
  if (weights_can_be_mapped && kind == StartWait::weights_work) return loading_mapped;
  return text_of(kind).advice;
}

bool uses_disk(const StartSample& step) noexcept {
  return step.counts.read_bytes + step.counts.major_faults + step.reader_bytes > 0;
}

class Shares {
 public:
  // Code that is imported after weights are opened is code all the same.
  void add(StartPhase::Kind phase, const StartSample& step) {
    if (step.code_files >= start::files_of_a_burst) phase = StartPhase::code;
    const double user = step.counts.user_seconds, system = step.counts.system_seconds;
    const double busy = std::min(step.seconds, user + system);
    const double idle = step.seconds - busy;
    const double disk = step.counts.disk_wait ? std::min(idle, *step.counts.disk_wait)
                        : uses_disk(step)     ? idle
                                              : 0;
    seconds_[StartWait::other] += idle - disk;
    const double in_system = busy > 0 ? busy * system / (user + system) : 0;
    add_work(phase, busy - in_system, in_system);
    const bool is_of_weights = phase == StartPhase::weights || phase == StartPhase::first_use;
    seconds_[is_of_weights ? StartWait::weights_disk : StartWait::code_disk] += disk;
  }

  std::vector<StartWait> sorted() const {
    std::vector<StartWait> waits;
    for (const KindText& text : texts) waits.push_back({text.kind, seconds_[text.kind]});
    std::stable_sort(waits.begin(), waits.end(),
                     [](const StartWait& a, const StartWait& b) { return a.seconds > b.seconds; });
    return waits;
  }

 private:
  void add_work(StartPhase::Kind phase, double user, double system) {
    switch (phase) {
      case StartPhase::code:
        seconds_[StartWait::code_work] += user + system;
        break;
      case StartPhase::model_creation:
        seconds_[StartWait::model_work] += user + system;
        break;
      case StartPhase::weights:
        seconds_[StartWait::weights_work] += user;
        seconds_[StartWait::first_touch] += system;
        break;
      case StartPhase::first_use:
        seconds_[StartWait::use_work] += user;
        seconds_[StartWait::first_touch] += system;
        break;
      case StartPhase::work:
      case StartPhase::image_check:
      case StartPhase::restore:
        seconds_[StartWait::use_work] += user + system;
        break;
    }
  }

  std::array<double, texts.size()> seconds_{};
};

std::string with_name(std::string_view advice, const std::string& name) {
  std::string text(advice);
  const std::size_t place = text.find("{}");
  return place == std::string::npos ? text : text.replace(place, 2, quoted(name));
}

std::string phases_text(const StartTimeline& timeline) {
  std::vector<std::string> parts;
  for (const StartPhase& phase : start::phases_of(timeline))
    parts.push_back(
        fmt::format("{} {:.1f} s", to_string(phase.kind),
                    timeline.samples[phase.last].seconds - timeline.samples[phase.first].seconds));
  return parts.empty() ? "" : ": " + joined_words(parts);
}

}  // namespace

std::string_view to_string(StartWait::Kind kind) noexcept { return text_of(kind).name; }

std::vector<StartWait> waits_of(const StartTimeline& timeline) {
  Shares shares;
  for (const StartPhase& phase : start::phases_of(timeline))
    for (std::size_t i = phase.first; i < phase.last; ++i)
      shares.add(phase.kind, start::difference(timeline.samples[i], timeline.samples[i + 1]));
  return shares.sorted();
}

std::vector<std::string> sentences_about(const StartTimeline& timeline) {
  const StartWait most = waits_of(timeline).front();
  const KindText& text = text_of(most.kind);
  const double all = timeline.seconds();
  std::string whole =
      fmt::format("The start of {} took {:.1f} s until it {}{}.", printable(timeline.program), all,
                  timeline.has_ended ? "ended" : "was ready", phases_text(timeline));
  if (most.seconds < least_wait) return {whole + " There is nothing in it to make shorter."};
  return {std::move(whole),
          fmt::format("It waited most for {}: {:.1f} s, {:.0f} % of the whole.", text.waited_for,
                      most.seconds, all > 0 ? most.seconds / all * 100 : 0),
          with_name(advice_for(most.kind, timeline.weights_can_be_mapped), timeline.program)};
}

}  // namespace weightmap::cli::doctor
