#include "tools/bench/cold/engines.hpp"

#include <algorithm>
#include <array>

#include "tools/bench/cold/process.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::array native = {
    NativeEngine{"disk", "O_DIRECT reads of 4 MiB by two threads: what the disk can do",
                 Way::direct},
    NativeEngine{"populate", "weightmap, Warmer: MADV_POPULATE_READ", Way::warm},
    NativeEngine{"window", "weightmap, Warmer: populate, dropping what has been read", Way::warm,
                 true, true},
    NativeEngine{"map-huge", "weightmap, page faults of 2 MiB where there are some", Way::map},
    NativeEngine{"map", "mmap, page faults", Way::map, false},
    NativeEngine{"copy", "read() of the whole file into memory by two threads", Way::copy},
};

struct PythonEngine {
  std::string_view name;
  std::string_view title;
};

// The engines of python_engines.py, used if there is no Python.
constexpr std::array python_engines = {
    PythonEngine{"torch-mmap", "torch.load(mmap=True)"},
    PythonEngine{"torch-copy", "torch.load(mmap=False)"},
    PythonEngine{"safetensors-mmap", "safetensors.safe_open"},
    PythonEngine{"safetensors-pread", "safetensors.safe_open(backend=\"pread\")"},
    PythonEngine{"weightmap-torch", "weightmap.torch.load"},
    PythonEngine{"fastsafetensors", "fastsafetensors, O_DIRECT by default"},
    PythonEngine{"runai-streamer", "Run:ai model streamer, O_DIRECT by default"},
};

Result<Json> ask_python(const std::string& python) {
  const Result<Finished> done = run_process({python, "-c", std::string(python_source()), "--list"});
  if (!done) return tl::unexpected<Error>(done.error());
  if (done->exit_code != 0)
    return failure(ErrorCode::unsupported, printable(python) + ": " + failure_text(*done));
  const Json list = Json::parse(done->output, nullptr, false);
  if (!list.is_array())
    return failure(ErrorCode::unsupported, printable(python) + " did not list its engines");
  return list;
}

BenchEngine from_json(const Json& json) {
  BenchEngine engine;
  engine.name = json.value("name", "");
  engine.title = json.value("title", "");
  // null: it can be measured.
  if (const auto why = json.find("why_not"); why != json.end() && why->is_string())
    engine.why_not = *why;
  engine.reads = json.value("reads", "pt") == "safetensors" ? Reads::safetensors : Reads::torch;
  return engine;
}

}  // namespace

const NativeEngine* find_native(std::string_view name) noexcept {
  const auto found = std::find_if(native.begin(), native.end(),
                                  [&](const NativeEngine& engine) { return engine.name == name; });
  return found == native.end() ? nullptr : &*found;
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const NativeEngine& engine : native) names.emplace_back(engine.name);
  for (const PythonEngine& engine : python_engines) names.emplace_back(engine.name);
  return names;
}

std::vector<BenchEngine> list_engines(const std::string& python) {
  std::vector<BenchEngine> engines;
  for (const NativeEngine& engine : native)
    engines.push_back({{std::string(engine.name), std::string(engine.title), {}}, &engine});
  const Result<Json> list = ask_python(python);
  if (list) {
    for (const Json& engine : *list) engines.push_back(from_json(engine));
    return engines;
  }
  for (const PythonEngine& engine : python_engines)
    engines.push_back(
        {{std::string(engine.name), std::string(engine.title), list.error().message}, nullptr});
  return engines;
}

}  // namespace weightmap::cli::bench
