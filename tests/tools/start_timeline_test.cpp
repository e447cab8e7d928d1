#include "tools/run/start_timeline.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tools/run/timeline_report.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A start of eight seconds: two of imports, one of making a model, three of reading weights of 64
// MiB, two of use.
StartTimeline whole_start() {
  StartTimeline timeline{"python", false, {}};
  for (int second = 0; second <= 8; ++second) {
    StartSample sample;
    sample.seconds = second;
    sample.counts.user_seconds = second;
    sample.code_files = second == 0 ? 0 : second == 1 ? 500 : second < 5 ? 600 : 605;
    sample.weight_bytes = second < 4 ? 0 : 64 * mib;
    sample.counts.read_bytes = second <= 3 ? 0 : second <= 6 ? (second - 3) * 20 * mib : 60 * mib;
    sample.counts.anonymous_bytes = static_cast<std::uint64_t>(second) * 8 * mib;
    timeline.samples.push_back(sample);
  }
  timeline.samples[8].counts.major_faults = 4;
  return timeline;
}

std::string text_of(const StartTimeline& timeline) {
  std::string text;
  for (const StartPhase& phase : phases_of(timeline))
    text += std::string(to_string(phase.kind)) + " " + std::to_string(phase.first) + "-" +
            std::to_string(phase.last) + "; ";
  return text;
}

std::string lanes_text(const StartTimeline& timeline) {
  std::string text;
  for (const TimelineLane& lane : lanes_of(timeline))
    text += std::string(lane.title) + ", " + std::string(lane.name) + ": " + lane.largest + "\n";
  return text;
}

TEST_CASE("phases follow from code files, weights and what is read") {
  StartTimeline timeline = whole_start();
  CHECK(text_of(timeline) == "code 0-2; model creation 2-3; weights 3-6; first use 6-8; ");
  timeline.samples[7].counts.file_bytes = 2 * mib;  // touched late
  CHECK(text_of(timeline) == "code 0-2; model creation 2-3; weights 3-7; first use 7-8; ");
  timeline.samples[8].counts.called_bytes = mib;
  CHECK(text_of(timeline) == "code 0-2; model creation 2-3; weights 3-8; ");
}

TEST_CASE("a timeline ends when the start did") {
  StartTimeline timeline = whole_start();
  end_at(timeline, 2.5);
  CHECK(timeline.samples.size() == 4);
  CHECK(timeline.samples[3].seconds == 2.5);
  CHECK(timeline.samples[3].code_files == 600);
}

TEST_CASE("a start that was over before the first look at it takes no time") {
  StartTimeline timeline = whole_start();
  end_at(timeline, -0.5);
  CHECK(timeline.samples.size() == 2);
  CHECK(timeline.seconds() == 0);
  CHECK(text_of(timeline) == "work 0-1; ");
}

TEST_CASE("a start from a snapshot has the phases and lanes of a restore") {
  StartTimeline timeline = whole_start();
  mark_restore(timeline, {0.5, 3.0});
  CHECK(timeline.samples.size() == 9 + 2);
  CHECK(timeline.samples[1].seconds == 0.5);
  CHECK(text_of(timeline) == "image check 0-1; restore 1-4; first use 4-10; ");
  CHECK(lanes_text(timeline) ==
        "image, read by calls: 0 B\n"
        "first use, processors: 2.0\n"
        "first use, in the system: 0.0\n"
        "faults, major: 4/s\n"
        "faults, minor: 0/s\n"
        "disk rate, command: 20.0 MiB/s\n"
        "disk rate, reader: 0 B/s\n"
        "memory, anonymous: 64.0 MiB\n"
        "memory, of files: 0 B\n");
  timeline = whole_start();
  mark_restore(timeline, {8, 8});
  CHECK(text_of(timeline) == "image check 0-8; first use 8-10; ");
}

TEST_CASE("a few late code files are no import") {
  StartTimeline timeline = whole_start();
  timeline.samples[3].code_files = 609;
  CHECK(text_of(timeline) == "code 0-2; model creation 2-3; weights 3-6; first use 6-8; ");
  timeline.samples[3].code_files = 610;
  CHECK(text_of(timeline) == "code 0-3; weights 3-6; first use 6-8; ");
  for (StartSample& sample : timeline.samples) sample.code_files = sample.seconds < 1 ? 0 : 3;
  CHECK(text_of(timeline) == "code 0-1; model creation 1-3; weights 3-6; first use 6-8; ");
}

TEST_CASE("a start without weights is code and work") {
  StartTimeline timeline = whole_start();
  for (StartSample& sample : timeline.samples) sample.weight_bytes = 0;
  CHECK(text_of(timeline) == "code 0-2; work 2-8; ");
  timeline.samples.resize(1);
  CHECK(text_of(timeline).empty());
  timeline.samples.clear();
  CHECK(text_of(timeline).empty());
  CHECK(timeline_page(timeline).starts_with("<!DOCTYPE html>"));
}

TEST_CASE("a process that is gone takes nothing back") {
  StartSample before, after;
  before.counts.minor_faults = 9;
  before.counts.user_seconds = 3;
  after.seconds = 1;
  after.counts.system_seconds = 0.5;
  const StartSample step = difference(before, after);
  CHECK(step.counts.minor_faults == 0);
  CHECK(step.counts.user_seconds == 0);
  CHECK(step.counts.system_seconds == 0.5);
  CHECK(!step.counts.disk_wait);
}

TEST_CASE("lanes have rates, amounts and the largest of them") {
  CHECK(lanes_text(whole_start()) ==
        "imports, code files: 500/s\n"
        "model creation, processors: 1.0\n"
        "model creation, in the system: 0.0\n"
        "loads, weights open: 64.0 MiB\n"
        "loads, read by calls: 0 B\n"
        "faults, major: 4/s\n"
        "faults, minor: 0/s\n"
        "disk rate, command: 20.0 MiB/s\n"
        "disk rate, reader: 0 B/s\n"
        "memory, anonymous: 64.0 MiB\n"
        "memory, of files: 0 B\n");
  const std::vector<TimelineLane> lanes = lanes_of(whole_start());
  CHECK(lanes[0].values == std::vector<double>{500, 100, 0, 0, 5, 0, 0, 0});
  CHECK(lanes[5].values == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 4});
}

TEST_CASE("a terminal shows bars in ASCII") {
  const std::vector<std::string> lines = timeline_lines(whole_start());
  REQUIRE(lines.size() == 10);
  CHECK(lines[0] ==
        "code               [##########..............................] 2.0 s, 2.0 s of processors, "
        "0 B from the disk");
  CHECK(lines[2] ==
        "weights            [...............###############..........] 3.0 s, 3.0 s of processors, "
        "60.0 MiB from the disk");
  CHECK(lines[4] == "faults, major      [                                   #####] up to 4/s");
  CHECK(lines[6] ==
        "disk rate, command [               ###############          ] up to 20.0 MiB/s");
  CHECK(lines[8] == "memory, anonymous  [.....:::::-----==========+++++*****#####] up to 64.0 MiB");
}

TEST_CASE("a page has bars of all lanes") {
  const std::string page = timeline_page(whole_start());
  const auto has = [&](const std::string& text) { return page.find(text) != std::string::npos; };
  CHECK(has("<pre>code                          [" + std::string(25, '#') + std::string(75, '.') +
            "] 2.0 s"));
  CHECK(has("\nimports, code files           ["));
  CHECK(has("\nmemory, of files              ["));
}

TEST_CASE("a page needs nothing but itself, and its marks are closed") {
  const std::string page = timeline_page(whole_start());
  for (const char* outside :
       {"http://", "https://", "src=", "href=", "url(", "@import", "<script"}) {
    INFO(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
  const auto occurrences = [&](const std::string& text) {
    std::size_t number = 0;
    for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1))
      ++number;
    return number;
  };
  for (const std::string name : {"html", "head", "title", "body", "style", "table", "pre", "div",
                                 "tr", "td", "h1", "h2", "p"}) {
    INFO(name);
    CHECK(occurrences("</" + name + ">") > 0);
    CHECK(occurrences("<" + name + ">") + occurrences("<" + name + " ") ==
          occurrences("</" + name + ">"));
  }
}

TEST_CASE("a name is escaped in the page") {
  StartTimeline timeline = whole_start();
  timeline.program = "<b>&\"'\x1b";
  const std::string page = timeline_page(timeline);
  CHECK(page.find("Start of &lt;b&gt;&amp;&quot;&#39;\\x1B: 8.0 s") != std::string::npos);
  CHECK(page.find("<b>") == std::string::npos);
}

}  // namespace
}  // namespace weightmap::cli::start
