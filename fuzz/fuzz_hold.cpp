// Sends any lines to a daemon as requests: each gets one line of JSON. "@" stands for the path of a
// checkpoint, and "~" for that of another file.
#include <span>
#include <string>
#include <string_view>

#include "fuzz/process_folder.hpp"
#include "fuzz/target.hpp"
#include "tests/support/archive_builder.hpp"
#include "tools/hold/hold_request.hpp"

namespace {

using namespace weightmap;

class Files {
 public:
  Files() {
    const test::Bytes archive = test::ArchiveBuilder()
                                    .add("archive/data.pkl", "\x80\x02}.")
                                    .add("archive/byteorder", "little")
                                    .add("archive/version", "3\n")
                                    .finish();
    folder_.write("checkpoint.pt", archive);
    folder_.write("stranger", std::as_bytes(std::span(std::string_view("nothing"))));
  }
  std::string checkpoint() const { return folder_.path() / "checkpoint.pt"; }
  std::string stranger() const { return folder_.path() / "stranger"; }

 private:
  fuzz::ProcessFolder folder_;
};

// Only these two files are opened, whatever the line contains.
std::string with_paths(std::string_view line, const Files& files) {
  std::string text;
  for (const char c : line) {
    if (c == '@')
      text += files.checkpoint();
    else if (c == '~')
      text += files.stranger();
    else
      text += c;
  }
  return text;
}

void check(std::span<const std::byte> input) {
  static const Files files;
  cli::hold::Keeper keeper(false, {}, {}, [](const std::string&) {});
  std::string_view rest(reinterpret_cast<const char*>(input.data()), input.size());
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::string answer = cli::hold::answer(keeper, with_paths(line, files));
    const cli::Json parsed = cli::Json::parse(answer, nullptr, false);
    fuzz::require(parsed.is_object() && parsed.contains("ok"), "no JSON: " + answer);
    fuzz::require(answer.find('\n') == std::string::npos, "more than one line: " + answer);
    keeper.advance();
    keeper.look(true);
  }
  (void)keeper.summary();
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
