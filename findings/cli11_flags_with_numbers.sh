#!/bin/bash
# CLI11 2.4.1: a check of a flag whose target is a number also runs where the flag is not given, on
# "0", and also if it belongs to a subcommand that is not the one in use. So a flag such as
#
#   run->add_flag("--keep{3600}", seconds)->check(CLI::Range(1, 86400));
#
# makes every command line of the program an error, "--keep: Value 0 not in range", and none of the
# program's own tests shows it as long as they run with CLI11 2.1.2: there a check runs on what is
# given alone. A flag that calls a function, add_flag_function(), has its check on what is given in
# both.
#
# A flag for a number counts how often it is given, and in the newer version its target is set to
# the default, 0, where that is never; the default goes through the checks as any value does.
#
# Seen (libcli11-dev 2.1.2+ds-1 of Debian 12 and 2.4.1+ds-2 of Debian 13, g++ 12.2):
#   CLI11 2.1.2   "other" is taken with both flags; "run --keep=0" is refused
#   CLI11 2.4.1   "other" is refused with the number, and taken with the function
#
# Ends with 1 if any of these is otherwise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >program.cpp <<'PROGRAM'
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>

bool takes(bool by_function, const std::string& line) {
  CLI::App app("program");
  std::int64_t seconds = 0;
  CLI::App* const run = app.add_subcommand("run");
  app.add_subcommand("other");
  CLI::Option* const flag =
      by_function ? run->add_flag_function("--keep{3600}", [&](std::int64_t n) { seconds = n; })
                  : run->add_flag("--keep{3600}", seconds);
  flag->check(CLI::Range(1, 86400));
  try {
    app.parse(line);
  } catch (const CLI::ParseError&) {
    return false;
  }
  return true;
}

int main() {
  for (const bool by_function : {false, true})
    for (const char* line : {"other", "run --keep=0", "run --keep"})
      std::printf("%d", takes(by_function, line) ? 1 : 0);
}
PROGRAM

use() {  # version, SHA-256: prints what a program with it takes
  local package=libcli11-dev_$1_all.deb
  curl -fsS -o "$package" "http://deb.debian.org/debian/pool/main/c/cli11/$package"
  sha256sum --quiet -c <<<"$2  $package"
  dpkg -x "$package" "$1"
  g++ -std=c++17 -I"$1/usr/include" program.cpp -o "program-$1"
  "./program-$1"
}

# With the number: other, run --keep=0, run --keep; then the same with the function.
old=$(use 2.1.2+ds-1 f1f6ee9ec053e0e0bcec47345e241b6a8ee006321248b4329e9ce88d2b4b64a8)
new=$(use 2.4.1+ds-2 3b44d5a1edc75b413b2dddfa81bcf7dac05dae8dae502e7d818d9c2b03392023)
echo "taken by 2.1.2: $old, by 2.4.1: $new"
[[ $old == 101101 && $new == 001101 ]]
