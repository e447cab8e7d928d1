#include "tests/hostile/expectation.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weightmap::test {
namespace {

using Json = nlohmann::json;

Expectation expectation_of(const Json& from) {
  Expectation made;
  const auto verdict = from.at("verdict").get<std::string>();
  made.verdict = verdict == "open"     ? Verdict::open
                 : verdict == "either" ? Verdict::either
                                       : Verdict::refuse;
  made.code = from.value("code", "");
  made.words = from.value("words", std::vector<std::string>{});
  if (from.contains("at")) made.file_offset = from.at("at").get<std::uint64_t>();
  return made;
}

HostileFile file_of(const Json& from, const std::filesystem::path& folder) {
  HostileFile made;
  made.name = from.at("file").get<std::string>();
  made.path = folder / made.name;
  made.chain = expectation_of(from.at("chain"));
  made.crc = expectation_of(from.at("crc"));
  for (const auto& [name, content] : from.at("tensors").items())
    made.tensors[name] = {content.at(0).get<std::uint64_t>(), content.at(1).get<std::uint32_t>()};
  made.all_tensors = from.at("all_tensors").get<bool>();
  made.is_huge = from.at("is_huge").get<bool>();
  made.memory_bytes = from.at("memory_bytes").get<std::uint64_t>();
  return made;
}

}  // namespace

std::vector<HostileFile> read_manifest(const std::filesystem::path& manifest) {
  std::vector<HostileFile> files;
  try {
    std::ifstream in(manifest);
    for (const Json& entry : Json::parse(in))
      files.push_back(file_of(entry, manifest.parent_path()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", manifest.c_str(), error.what());
    std::exit(2);
  }
  return files;
}

}  // namespace weightmap::test
