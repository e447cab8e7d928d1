#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/report.hpp"
#include "tools/bench/cold/rounds.hpp"
#include "tools/bench/cold/statistics.hpp"

namespace weightmap::cli::bench {
namespace {

using Values = std::vector<double>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Samples that took these times until all bytes were read, and a quarter, half and 3/4 of them for
// the steps before.
Series series(const std::string& engine, const Values& all_ms) {
  Series out;
  out.engine = engine;
  for (double ms : all_ms) {
    Sample sample;
    sample.open_ms = ms / 4;
    sample.first_byte_ms = ms / 2;
    sample.first_tensor_ms = ms * 3 / 4;
    sample.all_ms = ms;
    sample.disk_bytes = 1'000'000;
    sample.checksum = 0xfedcba9876543210;
    out.samples.push_back(sample);
  }
  return out;
}

// "ours" against itself ("ours-again"), one that takes twice as long, one that is not there.
Results results() {
  Results out;
  out.machine = {"Processor", 2,       1 << 30,   "Linux 6.18", "ext4",
                 "vda",       8 << 20, "madvise", "2026-11-21"};
  out.version = "1.2.3";
  out.rounds = 7;
  out.reference = "ours";
  out.again = "ours-again";
  out.engines = {{"ours", "our loader", ""},
                 {"ours-again", "our loader once more", ""},
                 {"torch", "torch.load", ""},
                 {"absent", "an absent loader", "it is not installed"}};
  FileResults file;
  file.path = "model.pt";
  file.file_bytes = 2'001'000;
  file.tensors = 3;
  file.tensor_bytes = 2'000'000;
  file.named_tensor = "layer.weight";
  file.named_tensor_bytes = 1000;
  file.series = {series("ours", {10, 11, 12, 13, 14, 15, 16}),
                 series("ours-again", {10, 11, 12, 13, 14, 15, 17}),
                 series("torch", {20, 22, 24, 26, 28, 30, 32})};
  out.files = {file};
  return out;
}

// The reference once more took 1.1 times as long in every round.
Results with_failed_aa() {
  Results out = results();
  out.files[0].series[1] = series("ours-again", {11, 12.1, 13.2, 14.3, 15.4, 16.5, 17.6});
  return out;
}

void check_summary(const Values& values, double median, double min, double p95) {
  const Summary summary = summarize(values);
  CHECK(summary.median == median);
  CHECK(summary.min == min);
  CHECK(summary.p95 == p95);
}

TEST_CASE("progress tells how long the rest takes, by what was done") {
  CHECK(progress_text(1, 12, 0.5, "disk") == "[1 of 12] disk");
  CHECK(progress_text(3, 12, 8, "map, cold") == "[3 of 12, about 40 s left] map, cold");
  CHECK(progress_text(12, 12, 110, "map") == "[12 of 12, about 10 s left] map");
}

TEST_CASE("summarizes by the middle and by the nearest rank") {
  check_summary({3}, 3, 3, 3);
  check_summary({4, 2}, 3, 2, 4);
  check_summary({5, 1, 4, 2, 3}, 3, 1, 5);
  check_summary({7, 7, 7, 7}, 7, 7, 7);
  check_summary({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, 10.5, 1,
                19);
  check_summary({21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, 11, 1,
                20);
  CHECK(std::isnan(summarize({}).median));
}

void check_interval(const Values& mine, double value, double low, double high, double confidence) {
  const std::optional<Ratio> ratio = compare(mine, Values(mine.size(), 1.0));
  REQUIRE(ratio);
  CHECK(ratio->value == value);
  CHECK(ratio->low == low);
  CHECK(ratio->high == high);
  CHECK(ratio->confidence == confidence);
}

TEST_CASE("takes the narrowest interval of at least 95 %, or the widest there is") {
  check_interval({2}, 2, 2, 2, 0);
  check_interval({2, 4}, 3, 2, 4, 0.5);
  check_interval({5, 4, 3, 2, 1}, 3, 1, 5, 0.9375);
  check_interval({1, 2, 3, 4, 5, 6}, 3.5, 1, 6, 0.96875);
  check_interval({1, 2, 3, 4, 5, 6, 7}, 4, 1, 7, 0.984375);
  check_interval({1, 2, 3, 4, 5, 6, 7, 8}, 4.5, 1, 8, 0.9921875);
  check_interval({9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 2, 8, 0.9609375);
  check_interval({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 6.5, 3, 10, 1 - 79.0 / 2048);
  check_interval({3, 3, 3, 3, 3, 3, 3}, 3, 3, 3, 0.984375);
}

TEST_CASE("keeps its confidence over many rounds") {
  const std::optional<Ratio> ratio = compare(Values(5000, 2.0), Values(5000, 1.0));
  CHECK(ratio->confidence > 0.95);
  CHECK(ratio->confidence < 0.952);
}

TEST_CASE("compares round by round, not median by median") {
  // Every round took twice as long, though no two rounds were alike.
  const std::optional<Ratio> ratio =
      compare(Values{2, 20, 200, 4, 40, 400}, Values{1, 10, 100, 2, 20, 200});
  CHECK(ratio->value == 2);
  CHECK(ratio->low == 2);
  CHECK(ratio->high == 2);
  CHECK(ratio->differs());
}

TEST_CASE("compares the rounds that both have") {
  CHECK(compare(Values{2, 2, 9}, Values{1, 1})->value == 2);
  CHECK(compare(Values{2, 2, 9}, Values{1, 1})->confidence == 0.5);
}

TEST_CASE("does not compare with nothing or with no time") {
  CHECK_FALSE(compare(Values{}, Values{}));
  CHECK_FALSE(compare(Values{1}, Values{}));
  CHECK_FALSE(compare(Values{1, 1}, Values{1, 0}));
  CHECK_FALSE(compare(Values{1}, Values{std::numeric_limits<double>::quiet_NaN()}));
}

TEST_CASE("differs if the interval leaves out 1") {
  CHECK(Ratio{1.2, 1.1, 1.3, 0.98}.differs());
  CHECK(Ratio{0.8, 0.7, 0.9, 0.98}.differs());
  CHECK_FALSE(Ratio{1.2, 1.0, 1.3, 0.98}.differs());
  CHECK_FALSE(Ratio{0.8, 0.7, 1.0, 0.98}.differs());
}

TEST_CASE("writes figures with three digits and their unit") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(0.0524) == "0.052");
  CHECK(short_number(9.996) == "10.0");
  CHECK(short_number(612.4) == "612");
  CHECK(duration(999.4) == "999 ms");
  CHECK(duration(1234) == "1.23 s");
  CHECK(percent(0.984375) == "98.4 %");
  CHECK(percent(1) == "100 %");
  CHECK(short_count(9999) == "9999");
  CHECK(short_count(530123) == "530k");
  CHECK(short_count(1.5e6) == "1.50M");
  CHECK(gigabytes_per_second(2'000'000, 1) == "2.00");
  CHECK(gigabytes_per_second(2'000'000, 0) == "-");
}

TEST_CASE("writes a ratio so that one sees on which side of 1 its interval lies") {
  CHECK(ratio_text({2.414, 2.3, 2.66, 0.98}) == "2.41x [2.30, 2.66]");
  CHECK(ratio_text({1.02, 1.001, 1.1, 0.98}) == "1.020x [1.001, 1.100]");
  CHECK(ratio_text({12.34, 9.999, 20, 0.98}) == "12.3x [10.0, 20.0]");
  CHECK(ratio_text({0.0042, 0.004, 0.005, 0.98}) == "0.0042x [0.0040, 0.0050]");
  CHECK(ratio_text({2, 2, 2, 0}) == "2.00x");
}

TEST_CASE("passes the A/A check if the reference is not told apart from itself") {
  const Results all = results();
  const std::vector<Section> found = sections(all, all.files[0]);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].aa);
  CHECK(found[0].aa->passed);
  CHECK(found[0].aa->all.value == 1);
  CHECK(found[0].aa->all.high == 17.0 / 16);
  CHECK(contains(text_report(all), "A/A check passed: ours again took 1.000x [1.000, 1.062]"));
  CHECK(json_report(all)["files"][0]["aa_checks"][0]["passed"] == true);
}

TEST_CASE("shows a failed A/A check in every report") {
  const Results all = with_failed_aa();
  const std::string sentence = "A/A CHECK FAILED: ours again took 1.10x [1.10, 1.10] as long";
  CHECK(contains(text_report(all), sentence));
  CHECK(contains(text_report(all), "Ratios within 10 % of 1 mean nothing here."));
  const Json check = json_report(all)["files"][0]["aa_checks"][0];
  CHECK(check["scenario"] == "cold");
  CHECK(check["order"] == "file");
  CHECK(check["passed"] == false);
  CHECK(check["all_ms"]["confidence"] == 0.984375);
}

TEST_CASE("does not tell an engine apart that differs less than the reference from itself") {
  Results all = with_failed_aa();
  all.files[0].series[2] =
      series("torch", {10.5, 11.55, 12.6, 13.65, 14.7, 15.75, 16.8});  // 1.05 times
  CHECK(sections(all, all.files[0])[0].findings[1].standing == Standing::same);
  all.files[0].series[1] = results().files[0].series[1];
  CHECK(sections(all, all.files[0])[0].findings[2].standing == Standing::slower);
}

TEST_CASE("lets a passed A/A check hide no difference, however much it varies") {
  Results all = results();
  all.files[0].series[1] = series("ours-again", {9, 12, 13.2, 14.3, 15.4, 16.5, 17.6});
  all.files[0].series[2] =
      series("torch", {10.5, 11.55, 12.6, 13.65, 14.7, 15.75, 16.8});  // 1.05 times
  const std::vector<Section> found = sections(all, all.files[0]);
  CHECK(found[0].aa->passed);
  CHECK(found[0].aa->deviation() > 0.09);
  CHECK(found[0].findings[1].series->engine == "torch");
  CHECK(found[0].findings[1].standing == Standing::slower);
}

TEST_CASE("says that there is no A/A check with one round or without the second measurement") {
  Results all = results();
  all.files[0].series.erase(all.files[0].series.begin() + 1);
  CHECK_FALSE(sections(all, all.files[0])[0].aa);
  CHECK(contains(text_report(all), "cold, file order: no A/A check"));
  all = results();
  for (Series& one : all.files[0].series) one.samples.resize(1);
  CHECK_FALSE(sections(all, all.files[0])[0].aa);
  CHECK(sections(all, all.files[0])[0].findings.back().standing == Standing::unknown);
}

TEST_CASE("puts the quickest first and says how it stands to the reference") {
  Results all = results();
  all.files[0].series.push_back(series("direct", {9, 10, 11, 12, 13, 14, 15}));
  const std::vector<Section> found = sections(all, all.files[0]);
  const std::vector<Finding>& findings = found[0].findings;
  CHECK(findings[0].series->engine == "direct");
  CHECK(findings[0].title == "direct");
  CHECK(findings[0].standing == Standing::faster);
  CHECK(findings[1].standing == Standing::reference);
  CHECK_FALSE(findings[1].all_ratio);
  CHECK(findings[2].standing == Standing::again);
  CHECK(findings[3].standing == Standing::slower);
  CHECK(headline(found[0], all.files[0]) == "Fastest: direct, 12.0 ms for all bytes (0.167 GB/s).");
}

TEST_CASE("does not call the reference's second measurement the fastest") {
  Results all = results();
  all.files[0].series[1] = series("ours-again", {9, 10, 11, 12, 13, 14, 17});
  const Section section = sections(all, all.files[0])[0];
  CHECK(section.findings[0].standing == Standing::again);
  CHECK(headline(section, all.files[0]) ==
        "Fastest: ours (our loader), 13.0 ms for all bytes (0.154 GB/s); it is the reference.");
}

TEST_CASE("says who is not told apart from the reference") {
  Results all = results();
  all.files[0].series[2] = series("torch", {9, 10, 11, 12, 13, 14, 17});
  CHECK(contains(text_report(all), "  ~0.92x [0.90, 1.06]  "));
  CHECK(contains(text_report(all), "GB/s); not told apart from the reference.\n"));
}

TEST_CASE("warns of few rounds, discarded samples and checksums that differ") {
  Results all = results();
  CHECK(warnings(all).empty());
  all.warnings = {"the runner's"};
  all.rounds = 5;
  all.files[0].series[0].discarded = 2;
  all.files[0].series[2].samples[6].checksum = 1;
  CHECK(warnings(all) ==
        std::vector<std::string>{
            "the runner's", "only 5 rounds: an interval of 95 % confidence takes 6",
            "model.pt: not all samples read the same bytes (their checksums differ)",
            "model.pt: 2 samples discarded by a guard and repeated"});
}

TEST_CASE("writes a table for the terminal") {
  const std::string text = text_report(results());
  CHECK(contains(text, "cold, file order; before each sample: none of the file in the page cache"));
  CHECK(contains(text,
                 "Fastest: ours (our loader), 13.0 ms for all bytes (0.154 GB/s); it is the "
                 "reference."));
  CHECK(contains(text,
                 "ours           3.25     6.50       9.75  13.0 (10.0, 16.0)  0.154"
                 "              reference  50 %      0/0   0 B         0 B -\n"));
  CHECK(contains(text,
                 "torch          6.50     13.0       19.5  26.0 (20.0, 32.0)  0.077"
                 "     2.00x [2.00, 2.00]  50 %      0/0   0 B         0 B -\n"));
  CHECK(contains(text, "not measured: absent: it is not installed\n"));
}

TEST_CASE("writes JSON with samples, summaries and ratios") {
  Results all = results();
  all.files[0].series[2].scenario = Scenario::poisoned;
  all.files[0].series[2].order = Order::random;
  all.files[0].series[0].samples[0].huge_part_after = 0.5;
  for (Sample& sample : all.files[0].series[1].samples) {
    sample.open_ms *= 2;
    sample.first_byte_ms *= 3;
  }
  const Json json = json_report(all);
  CHECK(json["version"] == "1.2.3");
  CHECK(json["machine"]["read_ahead_bytes"] == 8 << 20);
  CHECK(json["settings"] == Json{{"rounds", 7},
                                 {"reference", "ours"},
                                 {"again", "ours-again"},
                                 {"recycled_memory", true}});
  CHECK(json["engines"][3]["why_not"] == "it is not installed");
  CHECK(json["engines"][0]["why_not"].is_null());
  const Json& file = json["files"][0];
  CHECK(file["named_tensor"] == "layer.weight");
  CHECK(file["series"].size() == 3);
  const Json& ours = file["series"][0];
  CHECK(ours["samples"].size() == 7);
  CHECK(ours["samples"][0].dump() ==
        "{\"open_ms\":2.5,\"first_byte_ms\":5.0,\"first_tensor_ms\":7.5,\"all_ms\":10.0,"
        "\"disk_bytes\":1000000,\"minor_faults\":0,\"major_faults\":0,\"anonymous_bytes\":0,"
        "\"file_bytes\":0,\"cached_before\":0,\"cached_after\":0,\"huge_part_after\":0.5,"
        "\"checksum\":\"0xfedcba9876543210\"}");
  CHECK(ours["samples"][1]["huge_part_after"].is_null());
  CHECK(ours["summaries"]["all_ms"] == Json{{"median", 13.0}, {"min", 10.0}, {"p95", 16.0}});
  CHECK(ours["summaries"]["huge_part_after"]["median"] == 0.5);
  CHECK(ours["ratios"]["all_ms"].is_null());
  const Json& again = file["series"][1];
  CHECK(again["ratios"]["open_ms"]["value"] == 2);
  CHECK(again["ratios"]["first_byte_ms"]["value"] == 3);
  CHECK(again["ratios"]["all_ms"]["value"] == 1);
  CHECK(again["ratios"]["first_tensor_ms"] ==
        Json{{"value", 1.0}, {"low", 1.0}, {"high", 17.0 / 16}, {"confidence", 0.984375}});
  // There is no reference in this scenario.
  CHECK(file["series"][2]["scenario"] == "poisoned");
  CHECK(file["series"][2]["order"] == "random");
  CHECK(file["series"][2]["ratios"]["all_ms"].is_null());
}

TEST_CASE("compares nothing with a reference that took no time") {
  Results all = results();
  all.files[0].series[0] = series("ours", {0, 0, 0, 0, 0, 0, 0});
  const std::vector<Section> found = sections(all, all.files[0]);
  CHECK_FALSE(found[0].aa);
  CHECK(found[0].findings[2].standing == Standing::unknown);
  CHECK(json_report(all)["files"][0]["series"][2]["ratios"]["all_ms"].is_null());
  CHECK(contains(text_report(all), "0           0 (0, 0)      -     reference"));
  CHECK_FALSE(contains(text_report(all), "nan"));
  CHECK_FALSE(contains(text_report(all), "inf"));
}

TEST_CASE("reports an empty series, no rounds and no files") {
  Results all = results();
  all.files[0].series[2].samples.clear();
  all.files[0].series[2].why_not = "it was killed";
  CHECK(contains(text_report(all), "not measured: torch: it was killed\n"));
  CHECK(json_report(all)["files"][0]["series"][2]["why_not"] == "it was killed");
  CHECK(json_report(all)["files"][0]["series"][2]["summaries"]["all_ms"].is_null());

  all.rounds = 0;
  for (Series& one : all.files[0].series) one.samples.clear();
  CHECK(contains(text_report(all), "WARNING    model.pt: nothing was measured"));
  CHECK(contains(text_report(all), "not measured: ours: no samples\n"));

  all.files.clear();
  CHECK(contains(text_report(all), "weightmap bench 1.2.3, 2026-11-21\n"));
  CHECK(json_report(all)["files"] == Json::array());
}

TEST_CASE("lets no text from files move the cursor") {
  const std::string evil = "\x1b[2J\xff";
  Results all = results();
  all.files[0].path = evil;
  all.files[0].named_tensor = evil;
  all.engines[0].title = evil;
  all.engines[3].why_not = evil;
  all.engines[3].name = evil;
  all.warnings = {evil};
  all.machine.device = evil;
  const std::string text = text_report(all);
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK_FALSE(contains(text, "\xff"));
}

}  // namespace
}  // namespace weightmap::cli::bench
