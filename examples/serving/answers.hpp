// What the server answers, as JSON. server.cpp has the list of paths.
#pragma once

#include <httplib.h>

#include "examples/serving/served_model.hpp"

namespace serving {

// Adds all paths to `server`, which must not outlive `model`.
void add_answers(httplib::Server& server, const ServedModel& model);

}  // namespace serving
