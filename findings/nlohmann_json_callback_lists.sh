#!/bin/bash
# nlohmann-json 3.11.2: json::parse() with a callback takes a time that grows with the square of a
# list's length, also if the callback keeps everything; without one it grows with the length.
#
# A callback may discard values, so at the end of each object the parser looks for a discarded one in
# the list or object around it, from its beginning on. A list of n objects, such as the tensors or
# files that an index names, is so looked through n times. Where a callback only limits the depth or
# shows progress, a parse without one behind a scan of the text costs less.
#
# Seen (nlohmann-json 3.11.2-2 of Debian 12, g++ 12.2, -O2): four times as many objects take
#   without a callback: about 4 times as long
#   with a callback that keeps everything: about 16 times as long
#
# Ends with 1 if either is on the other side of 8, the middle of the two.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q nlohmann-json3-dev=3.11.2-2 >/dev/null
dpkg -x nlohmann-json3-dev_3.11.2-2_all.deb package

cat >program.cpp <<'PROGRAM'
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

using Json = nlohmann::json;

std::string list_of(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "{\"at\":" : ",{\"at\":") + std::to_string(i) + "}";
  return text + "]";
}

bool keep_all(int, Json::parse_event_t, Json&) { return true; }

double seconds(int count, const Json::parser_callback_t& callback) {
  const std::string text = list_of(count);
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const bool is_whole = Json::parse(text, callback).size() == static_cast<std::size_t>(count);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!is_whole) return 0;
    least = std::min(least, took.count());
  }
  return least;
}

int main() {
  constexpr int few = 10'000, many = 40'000;
  const double without = seconds(many, nullptr) / seconds(few, nullptr);
  const double with = seconds(many, keep_all) / seconds(few, keep_all);
  std::printf("four times as many objects: %.1f times as long without a callback, %.1f with one\n",
              without, with);
  return without < 8 && with > 8 ? 0 : 1;
}
PROGRAM
g++ -O2 -std=c++17 -Ipackage/usr/include program.cpp -o program
./program
