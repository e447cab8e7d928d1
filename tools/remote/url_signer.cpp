#include "tools/remote/url_signer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/run/command_process.hpp"
#include "tools/support/descriptor.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds longest_run{60};
constexpr int asked_every = 100;  // milliseconds
constexpr std::size_t longest_url = std::size_t{64} << 10;

tl::unexpected<Error> signer_failure(const std::string& command, const std::string& why,
                                     ErrorCode code = ErrorCode::io) {
  return failure(code, "the signer " + printable(command) + " " + why);
}

// What the command writes until it closes its output.
Result<std::string> read_all(const Descriptor& output, const std::string& command) {
  const Clock::time_point end = Clock::now() + longest_run;
  std::string text;
  for (;;) {
    if (interrupted()) return signer_failure(command, "was interrupted", ErrorCode::cancelled);
    if (Clock::now() > end)
      return signer_failure(
          command, "has not ended after " + std::to_string(longest_run.count()) + " seconds");
    pollfd ready{output.get(), POLLIN, 0};
    if (::poll(&ready, 1, asked_every) <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t got = ::read(output.get(), part.data(), part.size());
    if (got == 0) return text;
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > longest_url) return signer_failure(command, "prints more than a URL");
  }
}

Result<std::string> run_signer(std::vector<std::string> words, const std::string& url) {
  const std::string command = words.front();
  words.push_back(url);
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return signer_failure(command, "cannot be heard: " + std::generic_category().message(errno));
  const Descriptor output(ends[0]);
  Descriptor input(ends[1]);
  TRY_ASSIGN(start::CommandProcess process,
             start::CommandProcess::start_into(std::move(words), input));
  input = Descriptor();
  TRY_ASSIGN(std::string text, read_all(output, command));
  if (const int status = process.wait(); status != 0)
    return signer_failure(command, "ended with exit status " + std::to_string(status));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty() || text.find('\n') != text.npos)
    return signer_failure(command, "does not print one line, the URL");
  return text;
}

}  // namespace

decltype(RemoteOptions::signer) signer_by_command(std::vector<std::string> command) {
  return [command = std::move(command)](const std::string& url, bool) {
    return run_signer(command, url);
  };
}

}  // namespace weightmap::cli
