// `weightmap bench-sample`: a fresh process for `weightmap bench` that measures a native engine.
#include <fstream>
#include <iostream>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/consumer.hpp"
#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using namespace bench;

struct SampleOptions {
  std::string engine;
  std::string file;
  std::string order;
};

Result<std::vector<std::string>> read_order(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const Json json = Json::parse(file, nullptr, false);
  std::vector<std::string> names;
  if (!json.is_array() || json.empty())
    return failure(ErrorCode::invalid_argument, printable(path) + " is no list of names");
  for (const Json& name : json) {
    if (!name.is_string())
      return failure(ErrorCode::invalid_argument, printable(path) + " is no list of names");
    names.push_back(name);
  }
  return names;
}

Json describe_consumed(const Consumed& consumed) {
  const Sample& sample = consumed.sample;
  return {{"open_ms", sample.open_ms},
          {"first_byte_ms", sample.first_byte_ms},
          {"first_tensor_ms", sample.first_tensor_ms},
          {"all_ms", sample.all_ms},
          {"disk_bytes", sample.disk_bytes},
          {"minor_faults", sample.minor_faults},
          {"major_faults", sample.major_faults},
          {"anonymous_bytes", sample.anonymous_bytes},
          {"file_bytes", sample.file_bytes},
          {"checksum", sample.checksum},
          {"bytes", consumed.bytes}};
}

Result<int> run_sample(Output& out, const SampleOptions& options) {
  const NativeEngine* engine = find_native(options.engine);
  if (engine == nullptr)
    return failure(ErrorCode::invalid_argument, "no engine \"" + printable(options.engine) + "\"");
  TRY_ASSIGN(const std::vector<std::string> names, read_order(options.order));
  std::cout << ready_line << std::endl;
  std::string go;
  std::getline(std::cin, go);
  TRY_ASSIGN(const Consumed consumed, consume(*engine, options.file, names));
  out.write(to_text(describe_consumed(consumed)) + "\n");
  return exit_good;
}

}  // namespace

void add_bench_sample(CLI::App& app, Run& run) {
  auto options = std::make_shared<SampleOptions>();
  CLI::App& command = *app.add_subcommand("bench-sample", "One sample of weightmap bench");
  command.group("");  // hidden from the help
  command.add_option("ENGINE", options->engine)->required();
  command.add_option("FILE", options->file)->required();
  command.add_option("ORDER", options->order)->required();
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_sample(out, *options); }; });
}

}  // namespace weightmap::cli
