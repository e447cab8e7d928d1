// A command that is a fork of a template, seen by the process that was to become it: it passes
// signals on and ends as the command ends. When it is killed, the template kills the command.
#pragma once

#include <string>

#include "tools/template/template_peer.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::templates {

// Has the template's fork go on with these variables, and returns the exit status of the command,
// or ends by the signal that ended it. Fails with io, with nothing changed, if the fork did not go
// on. To be called while this process has one thread.
Result<int> run_forked(const TemplatePeer& peer, const std::string& variables, bool speaks);

}  // namespace weightmap::cli::templates
