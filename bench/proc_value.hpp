// Reads the system's counters of this process.
#pragma once

#include <fstream>
#include <string>

// Reads a line of a /proc file such as "read_bytes: 4096" or "VmHWM:  1234 kB"; otherwise -1.
inline long long proc_value(const char* file, const std::string& field) {
  std::ifstream lines(file);
  std::string name;
  long long value = -1;
  while (lines >> name)
    if (name == field) lines >> value;
  return value;
}
