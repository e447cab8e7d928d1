// A process that answers requests.
#pragma once

#include "examples/serving/served_model.hpp"

namespace serving {

// The life of a worker: answers what comes to `listening`, a socket that listens already, and
// follows the file. Ends on SIGTERM, or when the process `parent` is gone, after the requests under
// way. Answers its exit code. Needs block_signals().
int work(int listening, int parent, ServedModel& model);

}  // namespace serving
