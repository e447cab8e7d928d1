#include "tools/template/template_manifest.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "runtime/base/try.hpp"
#include "tools/snapshot/manifest_parts.hpp"

namespace weightmap::cli::templates {
namespace {

constexpr std::string_view template_kind = "weightmap template";
constexpr std::uint64_t template_version = 1;

const JsonReader template_reader("what the template says");

Json standard_streams() {
  Json streams = Json::array();
  for (int number = 0; number <= STDERR_FILENO; ++number) {
    struct stat status {};
    Json identity = Json::array();
    if (::fstat(number, &status) == 0) identity = {status.st_dev, status.st_ino};
    streams.push_back(std::move(identity));
  }
  return streams;
}

}  // namespace

Json describe_start(const std::vector<std::string>& command, const StartFacts& facts,
                    std::uint64_t idle_seconds) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"kind", template_kind},
          {"version", template_version},
          {"command", command},
          {"process", ::getpid()},
          {"began_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()},
          {"idle_s", idle_seconds},
          {"standard", standard_streams()},
          {"attributes", facts.attributes},
          {"environment", facts.environment},
          {"links", snapshot::describe(facts.links)}};
}

Result<TemplateManifest> parse_template(std::string_view text) {
  const JsonReader& reader = template_reader;
  TRY_ASSIGN(const Json json, reader.open(text, template_kind, template_version));
  TemplateManifest manifest;
  const auto words = [&](const char* name) {
    return snapshot::parse_list<std::string>(reader, json, name, snapshot::parse_word);
  };
  TRY_ASSIGN(manifest.command, words("command"));
  TRY_ASSIGN(manifest.new_variables, words("new_variables"));
  TRY_ASSIGN(manifest.facts.attributes, snapshot::parse_environment(reader, json, "attributes"));
  TRY_ASSIGN(manifest.facts.environment, snapshot::parse_environment(reader, json, "environment"));
  TRY_ASSIGN(manifest.facts.links, snapshot::parse_list<snapshot::NamedLink>(reader, json, "links",
                                                                             snapshot::parse_link));
  TRY_ASSIGN(manifest.files, snapshot::parse_list<snapshot::UsedFile>(reader, json, "files",
                                                                      snapshot::parse_used_file));
  return manifest;
}

}  // namespace weightmap::cli::templates
