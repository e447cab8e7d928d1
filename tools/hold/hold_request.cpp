#include "tools/hold/hold_request.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <exception>
#include <filesystem>

#include "runtime/base/try.hpp"
#include "tools/hold/hold_server.hpp"
#include "tools/hold/hold_socket.hpp"
#include "tools/hold/system_failure.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/json_reader.hpp"

namespace weightmap::cli::hold {
namespace {

constexpr timeval longest_silence{60, 0};
constexpr std::size_t longest_answer = std::size_t{16} << 20;

tl::unexpected<Error> bad_request(const std::string& why) {
  return failure(ErrorCode::invalid_argument, why);
}

Json refusal(const Error& error) { return {{"ok", false}, {"error", describe(error)}}; }

std::string text_of(const Json& request, const char* key) {
  const auto found = request.find(key);
  return found != request.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<std::filesystem::path> file_of(const Json& request) {
  const std::filesystem::path path = text_of(request, "file");
  if (!path.is_absolute()) return bad_request("\"file\" must be an absolute path");
  return path.lexically_normal();
}

Result<Json> hold_file(Keeper& keeper, const Json& request) {
  if (const std::string url = text_of(request, "url"); !url.empty())
    return keeper.hold_url(url, text_of(request, "name"), false);
  TRY_ASSIGN(const std::filesystem::path path, file_of(request));
  return keeper.hold(path);
}

Result<Json> release_file(Keeper& keeper, const Json& request) {
  const std::string url = text_of(request, "url");
  TRY_ASSIGN(const std::filesystem::path path,
             url.empty() ? file_of(request) : keeper.path_of_url(url));
  TRY(keeper.release(path));
  return Json{{"file", path.native()}};
}

Result<Json> act_on(Keeper& keeper, std::string_view line) {
  if (line.size() > HoldServer::longest_line)
    return bad_request("a line may have " + std::to_string(HoldServer::longest_line) + " bytes");
  const Json request = parse_json(line).value_or(Json());
  if (!request.is_object()) return bad_request("a request is a JSON object on one line");
  const std::string operation = text_of(request, "op");
  if (operation == "hold") return hold_file(keeper, request);
  if (operation == "release") return release_file(keeper, request);
  if (operation == "status") return keeper.describe();
  return bad_request("\"op\" must be \"hold\", \"release\" or \"status\"");
}

Result<void> send_all(const Descriptor& keeper, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(keeper.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return system_failure("ask the daemon", errno);
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> receive_line(const Descriptor& keeper) {
  std::string line;
  std::array<char, 4096> part;
  while (line.empty() || line.back() != '\n') {
    const ssize_t got = ::recv(keeper.get(), part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("hear from the daemon", errno);
    if (got == 0) return failure(ErrorCode::io, "the daemon left without an answer");
    if (line.size() > longest_answer)
      return failure(ErrorCode::io, "the daemon's answer is longer than " +
                                        std::to_string(longest_answer) +
                                        " bytes, which no status is");
    line.append(part.data(), static_cast<std::size_t>(got));
  }
  return line;
}

// Returns the daemon's error in its own words.
Error error_in(const Json& answer) {
  const Json error = answer.is_object() ? answer.value("error", Json::object()) : Json::object();
  std::string message = text_of(error, "message");
  if (message.empty()) message = "the daemon's answer is not the JSON that it should be";
  return {ErrorCode::io, message, Error::no_offset, {}};
}

}  // namespace

Json make_request(std::string_view operation, const std::string& file, const std::string& name) {
  if (file.empty()) return {{"op", operation}};
  if (names_remote_file(file)) return {{"op", operation}, {"url", file}, {"name", name}};
  return {{"op", operation}, {"file", std::filesystem::absolute(file).lexically_normal().native()}};
}

// No request ends the daemon, whatever it does to the memory that is left.
std::string answer(Keeper& keeper, std::string_view line) {
  try {
    const Result<Json> done = act_on(keeper, line);
    if (!done) return to_text(refusal(done.error()));
    Json answer = {{"ok", true}};
    answer.update(*done);
    return to_text(answer);
  } catch (const std::exception& error) {
    return to_text(refusal({ErrorCode::io, error.what(), Error::no_offset, {}}));
  }
}

Result<Json> ask(const std::filesystem::path& socket, const Json& request) {
  TRY_ASSIGN(const Descriptor keeper, connect_to_keeper(socket));
  ::setsockopt(keeper.get(), SOL_SOCKET, SO_RCVTIMEO, &longest_silence, sizeof longest_silence);
  TRY(send_all(keeper, to_text(request) + "\n"));
  TRY_ASSIGN(const std::string line, receive_line(keeper));
  Json answer = parse_json(line).value_or(Json());
  const bool is_good = answer.is_object() && answer.value("ok", Json()) == Json(true);
  if (!is_good) return tl::unexpected<Error>(error_in(answer));
  return answer;
}

}  // namespace weightmap::cli::hold
