// Each stage of the library alone, inside one process (Google Benchmark).
//
//   stage_bench --files=DIR [Google Benchmark options]
//
// DIR holds tensors_10.pt, tensors_1000.pt, tensors_100000.pt and gibibyte.pt as scripts/bench
// makes them. Whoever changes one layer sees here what it did; bench/stage_table.py makes a table
// of it. Opening as a whole and looking up names: open_bench and open_once.
#include "bench/stage_bench.hpp"

#include <cstdio>
#include <string>
#include <string_view>

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  constexpr std::string_view option = "--files=";
  if (argc != 2 || !std::string_view(argv[1]).starts_with(option)) {
    std::fprintf(stderr, "usage: stage_bench --files=DIR [Google Benchmark options]\n");
    return 2;
  }
  const std::string files(std::string_view(argv[1]).substr(option.size()));
  weightmap::bench::add_open_stages(files);
  weightmap::bench::add_page_stages(files);
  weightmap::bench::add_arithmetic_stages();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
