// A command that makes presigned URLs.
#pragma once

#include <string>
#include <vector>

#include "weightmap/remote.hpp"

namespace weightmap::cli {

// As RemoteOptions::signer: runs the command with the URL as one more argument, without a shell,
// and returns the line that it prints, which no message has. Its standard error is that of this
// program. Fails with io, naming the command and its exit status, unless it prints a line within a
// minute and ends with 0; with cancelled once interrupted() is true.
decltype(RemoteOptions::signer) signer_by_command(std::vector<std::string> command);

}  // namespace weightmap::cli
