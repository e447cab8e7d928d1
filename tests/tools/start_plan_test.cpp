#include "tools/run/start_plan.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/run/readiness.hpp"

namespace weightmap::cli::start {
namespace {

std::string plan_with(const std::string& file) {
  return R"({"kind":"weightmap start plan","version":1,"key":"k","files":[)" + file + "]}";
}

const std::string good = R"({"path":"/lib/a.so","size":9,"mtime_ns":-7,"parts":[[0,4],[5,4]]})";

TEST_CASE("a plan is written and read as the same JSON") {
  const std::string text = plan_with(good + R"(,{"path":"/b","size":3,"mtime_ns":8})");
  const Result<StartPlan> plan = parse_plan(text);
  REQUIRE(plan);
  CHECK(plan->key == "k");
  REQUIRE(plan->files.size() == 2);
  CHECK(plan->files[0].path == "/lib/a.so");
  CHECK(plan->files[0].mtime_ns == -7);
  CHECK(plan->files[0].parts == std::vector<ByteRange>{{0, 4}, {5, 4}});
  CHECK(plan->planned_bytes() == 8 + 3);
  CHECK(to_text(describe(*plan)) == text);
}

TEST_CASE("a plan is refused, and the field is named") {
  const auto message = [](const std::string& text) {
    const Result<StartPlan> plan = parse_plan(text);
    return plan ? "accepted" : plan.error().message;
  };
  const auto of_file = [&](const char* what, const char* instead) {
    std::string file = good;
    file.replace(file.find(what), std::string(what).size(), instead);
    return message(plan_with(file));
  };
  const std::string begin = "the plan of a start: files[0].";
  CHECK(message("{") == "the plan of a start: is no JSON");
  CHECK(message("[]") == "the plan of a start: \"kind\" is not \"weightmap start plan\"");
  CHECK(message(R"({"kind":"weightmap start plan","version":2})") ==
        "the plan of a start has version 2, expected 1");
  CHECK(message(R"({"kind":"weightmap start plan","version":1,"key":1})") ==
        "the plan of a start: key is 1, no text");
  CHECK(message(R"({"kind":"weightmap start plan","version":1,"key":"k","files":{}})") ==
        "the plan of a start: files is {}, no list");
  CHECK(message(std::string(200000, '[') + std::string(200000, ']')) ==
        "the plan of a start: is nested more than 64 deep");
  CHECK(message(R"({"kind":"weightmap start plan","version":1,"key":)" +
                std::string(200000, '[')) == "the plan of a start: is no JSON");
  CHECK(message(R"({"kind":"weightmap start plan","version":1,"key":"\")" + std::string(65, '[') +
                R"(\\"})") == "the plan of a start: files is null, no list");
  CHECK(message(plan_with("1")) == "the plan of a start: files[0] is 1, no object");
  CHECK(of_file("9", "-9") == begin + "size is -9, no number");
  CHECK(of_file("-7", "0.5") == begin + "mtime_ns is 0.5, no number");
  CHECK(of_file("[[0,4],[5,4]]", "3") == begin + "parts is 3, no list");
  CHECK(of_file("[5,4]", "[5]") == begin + "parts has [5]");
  for (const char* const part : {"[5,5]", "[3,1]", "[5,0]", "[18446744073709551615,4]"})
    CHECK(of_file("[5,4]", part) ==
          begin + "parts has " + part + ", which is not behind the one before and in 9 bytes");
  for (const char* const path : {"lib/a.so", "/lib/../a", "/lib//a", "/proc/kcore", "/sys/a",
                                 "/dev/zero", "/run/a", "/lib/", "/a\\u0000b"})
    CHECK(of_file("/lib/a.so", path) ==
          begin + "path is \"" + (std::string(path) == "/a\\u0000b" ? "/a\\\\u0000b" : path) +
              "\", no absolute path of a file on a disk");
}

TEST_CASE("the word of --ready says what is waited for") {
  using std::chrono::seconds;
  const auto parsed = [](const char* text) { return parse_ready(text).value(); };
  const auto url = std::get<ReadyUrl>(parsed("http://localhost:8000/health"));
  CHECK(url.host == "localhost");
  CHECK(url.port == "8000");
  CHECK(url.path == "/health");
  CHECK(std::get<ReadyUrl>(parsed("http://h")).port == "80");
  CHECK(std::get<ReadyUrl>(parsed("http://h")).path == "/");
  CHECK(std::get<ReadyPort>(parsed("8000")).port == "8000");
  CHECK(std::get<seconds>(parsed("30s")) == seconds(30));
  CHECK(std::get<ReadyFile>(parsed("./ready")).path == "./ready");
  for (const char* const wrong : {"", "soon", "http://", "http://h:x/", "123456", "-1s"})
    CHECK(parse_ready(wrong).error().code == ErrorCode::invalid_argument);
}

TEST_CASE("a start is over when nothing is found or read for four seconds") {
  using std::chrono::seconds;
  const Readiness::Clock::time_point begin{};
  Readiness readiness({}, begin);
  CHECK(!readiness.is_over(1, begin + seconds(3)));
  CHECK(!readiness.is_over(2, begin + seconds(6)));
  CHECK(!readiness.is_over(2, begin + seconds(9)));
  CHECK(readiness.is_over(2, begin + seconds(10)));
  Readiness timed(seconds(30), begin);
  CHECK(!timed.is_over(1, begin + seconds(29)));
  CHECK(timed.is_over(2, begin + seconds(30)));
}

}  // namespace
}  // namespace weightmap::cli::start
