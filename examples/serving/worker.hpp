// A process that answers requests.
#pragma once

#include "examples/serving/served_model.hpp"

namespace serving {

// The life of a worker: answers what comes to `listening`, a bound socket, and follows the file.
// Ends after the requests under way, on SIGTERM or when the process `parent` is gone. Answers its
// exit code. Needs block_signals().
int work(int listening, int parent, ServedModel& model);

}  // namespace serving
