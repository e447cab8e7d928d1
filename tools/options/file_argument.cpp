#include "tools/options/file_argument.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/options/size_option.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/url_signer.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) + 1 - first);
}

void add_lines(const std::string& path, const std::string& option,
               std::vector<std::string>& words) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::string_view word = trimmed(line); !word.empty() && word.front() != '#')
      words.emplace_back(word);
  if (!file.eof()) throw CLI::ValidationError(option, "cannot read " + printable(path));
}

constexpr const char* needs_file =
    "cannot be a URL: this needs the file itself (weightmap fetch URL FILE)";

// Positional arguments that name checkpoints.
bool names_file(const CLI::Option& option) {
  constexpr std::array<std::string_view, 5> names = {"FILE", "OTHER", "IN", "NEW", "PATH"};
  return std::ranges::find(names, option.get_name()) != names.end();
}

void set_file(const std::string& text, const std::string& name, FileArgument& file) {
  file.file = text;
  if (!names_remote_file(text)) return;
  const Result<std::unique_ptr<RangeSource>> source = open_remote(text, {});
  if (!source) throw CLI::ValidationError(name, source.error().message);
  file.url = text;
  file.file = (*source)->name();
}

void read_sums(const std::string& file, Sha256Sums& into) {
  Result<Sha256Sums> sums = read_sha256_sums(file);
  if (!sums) throw CLI::ValidationError("--sums", file + " " + sums.error().message);
  into = std::move(*sums);
}

// Adds a repeatable option of which each value is a word or, after @, a file with a word on each
// line. Blanks at either end of a line, empty lines and lines that begin with # are skipped. A file
// that cannot be read is wrong usage.
CLI::Option* add_listed_words(CLI::App& command, const std::string& name,
                              std::vector<std::string>& words, const std::string& help) {
  const auto add = [&words, name](const std::string& text) {
    if (text.starts_with('@'))
      add_lines(text.substr(1), name, words);
    else
      words.push_back(text);
  };
  return command.add_option_function<std::string>(name, add, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->trigger_on_parse();
}

}  // namespace

CLI::Option* add_file_argument(CLI::App& command, FileArgument& file, const std::string& help,
                               const std::string& name) {
  const auto set = [&file, name](const std::string& text) { set_file(text, name, file); };
  return command.add_option_function<std::string>(name, set, help)->type_name("");
}

void add_remote_options(CLI::App& command, RemoteOptions& options) {
  command
      .add_option("--connections", options.connections,
                  "Of a URL: requests at a time; 16 to 64 unless given")
      ->check(CLI::Range(1u, 1024u))
      ->type_name("N");
  command.add_flag("--unproven", options.unproven,
                   "Of a URL: also of a server that names no version of the file");
  command
      .add_option_function<std::string>(
          "--signer",
          [&options](const std::string& text) {
            std::istringstream stream(text);
            std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
            if (words.empty()) throw CLI::ValidationError("--signer", "expected a command");
            options.signer = signer_by_command(std::move(words));
          },
          "Of a URL: run 'COMMAND URL', without a shell, for the presigned one that it prints; "
          "again whenever that is refused")
      ->type_name("COMMAND");
  add_listed_words(command, "--header", options.headers,
                   "Of a URL: send this header ('Name: text'), or those in @FILE, to its host")
      ->type_name("TEXT");
}

void add_sum_options(CLI::App& command, Sha256Sums& sums, bool& are_required,
                     const std::string& whose) {
  command
      .add_option_function<std::string>(
          "--sha256",
          [&sums](const std::string& hex) {
            const auto sum = sha256_of_hex(hex);
            if (!sum) throw CLI::ValidationError("--sha256", "expected 64 hexadecimal digits");
            sums[""] = *sum;
          },
          whose + "what the file must have")
      ->type_name("HEX");
  command
      .add_option_function<std::string>(
          "--sums", [&sums](const std::string& file) { read_sums(file, sums); },
          whose +
              "the file that lists what the files must have, as sha256sum prints it, or a "
              "model.sig "
              "of OpenSSF Model Signing, which is not verified")
      ->excludes("--sha256")
      ->type_name("FILE");
  command.add_flag("--require-digest", are_required,
                   whose + "refuse a file whose SHA-256 neither you nor its store says");
}

CLI::Option* add_fetch_options(CLI::App& command, FetchOptions& options) {
  add_size_option(
      command, "--chunk", [&options](std::uint64_t bytes) { options.chunk_bytes = bytes; },
      "Of a URL: bytes of a request, in steps of 2 MiB; 16 MiB unless given");
  add_sum_options(command, options.sha256, options.require_digest, "Of a URL: ");
  return add_listed_words(command, "--order", options.order,
                          "Of a URL: tensors to fetch first, or @FILE that lists them")
      ->type_name("PATTERN");
}

void refuse_url(const std::string& text) {
  if (names_remote_file(text)) throw CLI::ValidationError("FILE", needs_file);
}

void refuse_urls_elsewhere(CLI::App& app) {
  const auto is_path = [](const std::string& text) {
    return std::string(names_remote_file(text) ? needs_file : "");
  };
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const bool takes_urls = command->get_option_no_throw("--connections") != nullptr;
    if (takes_urls) continue;
    for (CLI::Option* const option : command->get_options())
      if (names_file(*option)) option->check(is_path);
  }
}

}  // namespace weightmap::cli
