#include "tools/snapshot/manifest.hpp"

#include <limits>
#include <numeric>

#include "runtime/base/try.hpp"
#include "tools/snapshot/manifest_parts.hpp"
#include "tools/support/json_reader.hpp"

namespace weightmap::cli::snapshot {
namespace {

constexpr std::string_view manifest_kind = "weightmap snapshot";
constexpr std::uint64_t manifest_version = 3;

const JsonReader manifest_reader("the manifest of a snapshot");

const Json& member(const Json& object, const char* name) {
  return JsonReader::member(object, name);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\0", 2)) == std::string::npos;
}

Result<ImageFile> parse_image_file(const JsonReader& reader, const Json& json,
                                   const std::string& where) {
  TRY(reader.expect_object(json, where));
  ImageFile file;
  TRY_ASSIGN(file.name, reader.text(member(json, "name"), where + ".name"));
  if (!is_plain_name(file.name))
    return reader.corrupt(where + ".name is " + JsonReader::shown(file.name) +
                          ", no name of a file");
  TRY_ASSIGN(file.size, reader.number(member(json, "size"), where + ".size"));
  TRY_ASSIGN(file.checksum, reader.number(member(json, "xxh3"), where + ".xxh3"));
  return file;
}

Result<Address> parse_listener(const JsonReader& reader, const Json& json,
                               const std::string& where) {
  TRY(reader.expect_object(json, where));
  Address listener;
  TRY_ASSIGN(listener.host, reader.text(member(json, "address"), where + ".address"));
  TRY_ASSIGN(const std::uint64_t port, reader.number(member(json, "port"), where + ".port"));
  if (port > std::numeric_limits<std::uint16_t>::max())
    return reader.corrupt(where + ".port is " + std::to_string(port) + ", no port");
  listener.port = static_cast<std::uint16_t>(port);
  listener.is_shared = member(json, "shared") == true;
  return listener;
}

Result<Machine> parse_machine(const JsonReader& reader, const Json& json) {
  const Json& object = member(json, "machine");
  TRY(reader.expect_object(object, "machine"));
  Machine machine;
  TRY_ASSIGN(machine.kernel, reader.text(member(object, "kernel"), "machine.kernel"));
  TRY_ASSIGN(machine.processor, reader.text(member(object, "processor"), "machine.processor"));
  return machine;
}

Result<pid_t> parse_root(const JsonReader& reader, const Json& json) {
  TRY_ASSIGN(const std::uint64_t root, reader.number(member(json, "root"), "root"));
  if (root < 2 || root > std::numeric_limits<pid_t>::max())
    return reader.corrupt("root is " + std::to_string(root) + ", no process of a command");
  return static_cast<pid_t>(root);
}

}  // namespace

std::uint64_t Manifest::image_bytes() const noexcept {
  return std::accumulate(image.begin(), image.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ImageFile& file) { return sum + file.size; });
}

Json describe(const Manifest& manifest) {
  Json image = Json::array(), listeners = Json::array();
  for (const Address& listener : manifest.listeners)
    listeners.push_back(
        {{"address", listener.host}, {"port", listener.port}, {"shared", listener.is_shared}});
  for (const ImageFile& file : manifest.image)
    image.push_back({{"name", file.name}, {"size", file.size}, {"xxh3", file.checksum}});
  return {
      {"kind", manifest_kind},
      {"version", manifest_version},
      {"key", manifest.key},
      {"command", manifest.command},
      {"meeting_point", manifest.meeting_point},
      {"criu", manifest.criu},
      {"made_ns", manifest.made_ns},
      {"machine", {{"kernel", manifest.machine.kernel}, {"processor", manifest.machine.processor}}},
      {"root", manifest.root},
      {"here", manifest.is_made_here},
      {"stdout_pipe", manifest.pipes[0]},
      {"stderr_pipe", manifest.pipes[1]},
      {"environment", manifest.environment},
      {"new_variables", manifest.new_variables},
      {"listeners", std::move(listeners)},
      {"socket_files", manifest.socket_files},
      {"keeps_connections", manifest.keeps_connections},
      {"image", std::move(image)},
      {"files", describe(manifest.files)},
      {"links", describe(manifest.links)}};
}

Result<Manifest> parse_manifest(std::string_view text) {
  const JsonReader& reader = manifest_reader;
  TRY_ASSIGN(const Json json, reader.open(text, manifest_kind, manifest_version));
  Manifest manifest;
  TRY_ASSIGN(manifest.key, reader.text(member(json, "key"), "key"));
  TRY_ASSIGN(manifest.command, parse_list<std::string>(reader, json, "command", parse_word));
  TRY_ASSIGN(manifest.meeting_point, reader.text(member(json, "meeting_point"), "meeting_point"));
  TRY_ASSIGN(manifest.criu, reader.text(member(json, "criu"), "criu"));
  TRY_ASSIGN(manifest.made_ns, reader.signed_number(member(json, "made_ns"), "made_ns"));
  TRY_ASSIGN(manifest.machine, parse_machine(reader, json));
  TRY_ASSIGN(manifest.root, parse_root(reader, json));
  manifest.is_made_here = member(json, "here") == true;
  manifest.keeps_connections = member(json, "keeps_connections") == true;
  TRY_ASSIGN(manifest.pipes[0], reader.number(member(json, "stdout_pipe"), "stdout_pipe"));
  TRY_ASSIGN(manifest.pipes[1], reader.number(member(json, "stderr_pipe"), "stderr_pipe"));
  TRY_ASSIGN(manifest.environment, parse_environment(reader, json, "environment"));
  TRY_ASSIGN(manifest.new_variables,
             parse_list<std::string>(reader, json, "new_variables", parse_word));
  TRY_ASSIGN(manifest.image, parse_list<ImageFile>(reader, json, "image", parse_image_file));
  TRY_ASSIGN(manifest.listeners, parse_list<Address>(reader, json, "listeners", parse_listener));
  TRY_ASSIGN(manifest.socket_files,
             parse_list<std::string>(reader, json, "socket_files", parse_word));
  TRY_ASSIGN(manifest.files, parse_list<UsedFile>(reader, json, "files", parse_used_file));
  TRY_ASSIGN(manifest.links, parse_list<NamedLink>(reader, json, "links", parse_link));
  return manifest;
}

}  // namespace weightmap::cli::snapshot
