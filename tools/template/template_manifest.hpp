// What a template was made of. The first start writes the facts into a file, and the process that
// becomes a template adds files and variables and says all of it to each later start
// (python/weightmap/_template.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/snapshot/manifest.hpp"
#include "tools/support/json_out.hpp"
#include "tools/template/start_facts.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::templates {

struct TemplateManifest {
  std::vector<std::string> command;
  StartFacts facts;
  std::vector<std::string> new_variables;
  std::vector<snapshot::UsedFile> files;
};

// A manifest of this size names more files than any start opens.
inline constexpr std::uint32_t max_manifest_bytes = std::uint32_t{64} << 20;

// Returns the facts of a start that begins now, and of this process, which becomes the command. The
// template ends when it was not used for that many seconds.
Json describe_start(const std::vector<std::string>& command, const StartFacts& facts,
                    std::uint64_t idle_seconds);

// Fails with corrupt for what is no manifest, with unsupported for another version, naming the
// field.
Result<TemplateManifest> parse_template(std::string_view text);

}  // namespace weightmap::cli::templates
