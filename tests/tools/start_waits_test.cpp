#include "tools/doctor/start_waits.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

namespace weightmap::cli::doctor {
namespace {

using start::StartSample;
using start::StartTimeline;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// What happened in one second.
struct Second {
  double user = 0, system = 0;
  std::uint64_t disk_bytes = 0, reader_bytes = 0, code_files = 0, weight_bytes = 0;
};

StartTimeline timeline_of(const std::vector<Second>& seconds_list) {
  StartTimeline timeline{"serve", false, {StartSample{}}};
  for (const Second& second : seconds_list) {
    StartSample sample = timeline.samples.back();
    sample.seconds += 1;
    sample.counts.user_seconds += second.user;
    sample.counts.system_seconds += second.system;
    sample.counts.read_bytes += second.disk_bytes;
    sample.reader_bytes += second.reader_bytes;
    sample.code_files += second.code_files;
    sample.weight_bytes += second.weight_bytes;
    timeline.samples.push_back(sample);
  }
  return timeline;
}

std::string text_of(const StartTimeline& timeline) {
  std::string text;
  for (const StartWait& wait : waits_of(timeline))
    if (wait.seconds > 0) text += fmt::format("{} {:.2f}; ", to_string(wait.kind), wait.seconds);
  return text;
}

TEST_CASE("each second is shared out once") {
  CHECK(text_of(timeline_of({{.user = 0.5, .disk_bytes = 1, .code_files = 100}})) ==
        "code_disk 0.50; code_work 0.50; ");
  CHECK(text_of(timeline_of({{.user = 0.25, .system = 0.5, .code_files = 100}})) ==
        "code_work 0.75; other 0.25; ");
  CHECK(
      text_of(timeline_of({{.user = 1, .code_files = 100}, {.user = 0.75}, {.weight_bytes = 1}})) ==
      "other 1.25; code_work 1.00; model_work 0.75; ");
  CHECK(text_of(timeline_of({{}})) == "other 1.00; ");
  CHECK(text_of(timeline_of({})).empty());
}

TEST_CASE("a wait for what another process reads is one for the disk") {
  CHECK(text_of(timeline_of({{.user = 0.5, .reader_bytes = 1, .code_files = 100}})) ==
        "code_disk 0.50; code_work 0.50; ");
}

TEST_CASE("the system's own count of waits is believed") {
  StartTimeline timeline = timeline_of({{.user = 0.25, .disk_bytes = 1, .code_files = 100}});
  timeline.samples[0].counts.disk_wait = 0;
  timeline.samples[1].counts.disk_wait = 0.5;
  CHECK(text_of(timeline) == "code_disk 0.50; code_work 0.25; other 0.25; ");
}

TEST_CASE("what is imported after weights were opened is an import") {
  const Second imports{.user = 0.75, .disk_bytes = 1, .code_files = 10};
  CHECK(text_of(timeline_of({imports, {.weight_bytes = mib}, imports, {.disk_bytes = mib}})) ==
        "code_work 1.50; weights_disk 1.00; other 1.00; code_disk 0.50; ");
}

TEST_CASE("more than one processor does not wait") {
  CHECK(text_of(timeline_of({{.user = 1.5, .system = 0.5, .disk_bytes = mib}})) ==
        "use_work 1.00; ");
}

void check_sentences(const StartTimeline& timeline, const std::string& most,
                     const std::string& advice) {
  const std::vector<std::string> sentences = sentences_about(timeline);
  REQUIRE(sentences.size() == 3);
  CHECK(sentences[1] == most);
  CHECK(sentences[2].substr(0, advice.size()) == advice);
}

TEST_CASE("what waits for next to nothing gets no advice") {
  StartTimeline timeline = timeline_of({{.user = 0.04}});
  timeline.samples[1].seconds = 0.09;
  CHECK(sentences_about(timeline) ==
        std::vector<std::string>{"The start of serve took 0.1 s until it was ready: work 0.1 s. "
                                 "There is nothing in it to make shorter."});
  timeline.samples[1].seconds = 0.2;
  CHECK(sentences_about(timeline).size() == 3);
}

TEST_CASE("three sentences: how long, what for, what to do") {
  const Second imports{.user = 1, .code_files = 100};
  const Second opens{.user = 1, .disk_bytes = mib, .weight_bytes = mib};
  const StartTimeline timeline = timeline_of(
      {imports, {.user = 1}, opens, {.disk_bytes = mib}, {.disk_bytes = mib}, {.user = 1}});
  CHECK(sentences_about(timeline)[0] ==
        "The start of serve took 6.0 s until it was ready: code 1.0 s, model creation 1.0 s, "
        "weights 3.0 s, first use 1.0 s.");
  check_sentences(timeline, "It waited most for the disk, for weights: 2.0 s, 33 % of the whole.",
                  "`weightmap run -- serve ...` reads them");
  check_sentences(timeline_of({imports, imports}),
                  "It waited most for processors, for imports: 2.0 s, 100 % of the whole.",
                  "Import less");
  check_sentences(timeline_of({{.disk_bytes = mib, .code_files = 100}}),
                  "It waited most for the disk, for code and small files: 1.0 s, 100 % of the "
                  "whole.",
                  "`weightmap run -- serve ...` learns");
  check_sentences(timeline_of({imports, {.user = 1}, {.user = 1}, opens}),
                  "It waited most for processors, to make the model: 2.0 s, 50 % of the whole.",
                  "Make the model without values");
  check_sentences(
      timeline_of({imports, opens, {.system = 1}, {.system = 1}}),
      "It waited most for memory that is touched for the first time: 2.0 s, 50 % of the "
      "whole.",
      "Map the weights");
  check_sentences(timeline_of({imports, opens, opens}),
                  "It waited most for processors, to load the weights: 2.0 s, 67 % of the whole.",
                  "Save the weights");
  check_sentences(timeline_of({imports, opens, {.user = 1}, {.user = 1}}),
                  "It waited most for processors, in work of its own: 2.0 s, 50 % of the whole.",
                  "Nothing that is read ahead");
  check_sentences(
      timeline_of({{}}),
      "It waited most for something else than its own work and the disk: 1.0 s, 100 % of "
      "the whole.",
      "Look at what it waits for");
}

TEST_CASE("nobody is told to convert what is converted already") {
  const Second imports{.user = 1, .code_files = 100};
  const Second opens{.user = 1, .disk_bytes = mib, .weight_bytes = mib};
  for (const auto& [seconds, advice] :
       {std::pair{std::vector<Second>{imports, opens, opens},
                  "The weights are safetensors or GGUF"},
        {std::vector<Second>{imports, opens, {.system = 1}, {.system = 1}}, "Use a loader that"},
        {std::vector<Second>{imports, opens, imports}, "Import less"},
        {std::vector<Second>{imports, imports}, "Import less"}}) {
    StartTimeline timeline = timeline_of(seconds);
    timeline.weights_can_be_mapped = true;
    const std::string said = sentences_about(timeline).back();
    CHECK(said.starts_with(advice));
    CHECK(said.find("convert") == std::string::npos);
  }
}

TEST_CASE("a program's name is safe in a sentence and in a shell") {
  StartTimeline timeline = timeline_of({{.disk_bytes = mib, .code_files = 100}});
  timeline.program = "a b\x1b";
  timeline.has_ended = true;
  const std::vector<std::string> sentences = sentences_about(timeline);
  CHECK(sentences[0] == "The start of a b\\x1B took 1.0 s until it ended: code 1.0 s.");
  CHECK(sentences[2].starts_with("`weightmap run -- $'a b\\x1B' ...`"));
}

}  // namespace
}  // namespace weightmap::cli::doctor
