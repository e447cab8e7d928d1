#include "tools/template/template_start.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/system/process/runtime_directory.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/snapshot/used_files.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"
#include "tools/template/forked_command.hpp"
#include "tools/template/start_facts.hpp"
#include "tools/template/template_manifest.hpp"
#include "tools/template/template_peer.hpp"

namespace weightmap::cli::templates {
namespace {

namespace fs = std::filesystem;

// The variable with the file of facts, which snapshot_here() removes.
constexpr const char* facts_variable = "WEIGHTMAP_TEMPLATE";
constexpr std::string_view folder_prefix = "template-";

void say(const std::string& text) { std::fprintf(stderr, "weightmap run: %s\n", text.c_str()); }

// The template of a command: its socket, and the facts of starts that may leave one behind.
Result<fs::path> folder_of(const std::string& key) {
  TRY_ASSIGN(const fs::path directory, runtime_directory());
  fs::path folder = directory / (std::string(folder_prefix) + key);
  if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return folder;
  return failure(ErrorCode::io, "cannot make the folder " + printable(folder.native()) + ": " +
                                    std::strerror(errno));
}

// Of starts whose command has ended, and never called.
void remove_old_facts(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".facts") continue;
    std::error_code gone;
    if (!fs::exists("/proc/" + at->path().stem().native(), gone)) fs::remove(at->path(), gone);
  }
}

// The variables that the template has of its own start: those that each start has anew.
std::string own_variables(const std::vector<std::string>& new_variables) {
  const snapshot::HashedEnvironment compared = snapshot::hashed_environment(environ, new_variables);
  std::string block;
  for (const char* const* at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (!compared.contains(printable(entry.substr(0, entry.find('='))))) block += entry + '\0';
  }
  return block;
}

class TemplateStart {
 public:
  TemplateStart(const start::StartOptions& options, const start::StartCommand& what,
                fs::path folder)
      : options_(options),
        words_(what.words.begin(), what.words.end()),
        folder_(std::move(folder)),
        facts_(facts_of_this(words_)) {}

  std::optional<int> run() const {
    const Result<TemplatePeer> peer = TemplatePeer::connect(folder_);
    if (!peer && peer.error().code != ErrorCode::not_found)
      say("the template is not used: " + peer.error().message);
    if (!peer) return std::nullopt;
    const Result<int> status = run_from(*peer);
    if (status) return *status;
    say("the template is not used: " + to_string(status.error()));
    peer->end_template();
    return std::nullopt;
  }

  Result<void> prepare(std::uint64_t idle_seconds) const {
    remove_old_facts(folder_);
    const fs::path file = folder_ / (std::to_string(::getpid()) + ".facts");
    TRY(replace_file(file, to_text(describe_start(words_, facts_, idle_seconds)), 0600));
    ::setenv(facts_variable, file.c_str(), 1);
    return {};
  }

 private:
  Result<int> run_from(const TemplatePeer& peer) const {
    TRY_ASSIGN(const TemplateManifest manifest, peer.manifest());
    if (const std::string reason = reason_against(manifest); !reason.empty())
      return failure(ErrorCode::unsupported, reason);
    return run_forked(peer, own_variables(manifest.new_variables), options_.speaks);
  }

  std::string reason_against(const TemplateManifest& manifest) const {
    if (manifest.command != words_) return "it is of another command";
    if (std::string reason = beyond_standard_streams(); !reason.empty()) return reason;
    std::string reason = first_difference(manifest.facts, facts_, manifest.new_variables);
    return reason.empty() ? snapshot::first_change(manifest.files) : reason;
  }

  const start::StartOptions& options_;
  std::vector<std::string> words_;
  fs::path folder_;
  StartFacts facts_;
};

}  // namespace

Result<std::vector<fs::path>> template_folders() {
  TRY_ASSIGN(const fs::path directory, runtime_directory());
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().native().starts_with(folder_prefix)) folders.push_back(at->path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::optional<int> run_from_template(const start::StartOptions& options,
                                     const start::StartCommand& what, std::uint64_t idle_seconds) {
  const Result<fs::path> folder =
      folder_of(start::start_key(what.program, what.words, start::KeyOf::all_words));
  if (!folder) {
    say("without a template: " + to_string(folder.error()));
    return std::nullopt;
  }
  const TemplateStart start(options, what, *folder);
  std::optional<int> status = start.run();
  if (!status)
    if (const Result<void> prepared = start.prepare(idle_seconds); !prepared)
      say("no template is made: " + to_string(prepared.error()));
  return status;
}

}  // namespace weightmap::cli::templates
