// Adds the name of a file to an error.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

// Returns a path for errors: escaped, and cut if it is very long.
std::string shown_name(const std::filesystem::path& path);

// Adds the path to `error`, unless it names a file already.
tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path);
// Does the same for an escaped name.
tl::unexpected<Error> about_shown(Error error, const std::string& name);

// Do the same with the error of a result that has one.
template <class T>
Result<T> about_file(Result<T> result, const std::filesystem::path& path) {
  if (result) return result;
  return about_file(std::move(result).error(), path);
}
template <class T>
Result<T> about_shown(Result<T> result, const std::string& name) {
  if (result) return result;
  return about_shown(std::move(result).error(), name);
}

}  // namespace weightmap
