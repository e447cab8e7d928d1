#include "tools/run/named_models.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>

#include "runtime/formats/sets/hub.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

// Smaller files are no weights, and larger ones are not read as configuration.
constexpr std::uintmax_t least_weights_file = std::uintmax_t{1} << 20;
constexpr std::uintmax_t largest_small_file = std::uintmax_t{64} << 20;

bool has_weights_ending(const std::string& name) {
  for (const char* const ending :
       {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".ckpt", ".distcp"})
    if (name.ends_with(ending)) return true;
  return false;
}

bool has_weights_name(const fs::path& file) {
  return has_weights_ending(file.native()) || file.native().ends_with(".index.json");
}

bool has_weights(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (has_weights_name(at->path())) return true;
  return false;
}

std::string_view behind_equals(std::string_view argument) {
  const std::size_t equals = argument.find('=');
  return equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
}

// Returns the value of "NAME=value" if the name has MODEL in it.
std::string_view value_of_model_variable(std::string_view variable) {
  const std::size_t equals = variable.find('=');
  const std::size_t model = variable.find("MODEL");
  if (equals == std::string_view::npos || model == std::string_view::npos || model > equals)
    return {};
  return variable.substr(equals + 1);
}

}  // namespace

bool is_weights_file(const std::string& path, std::uintmax_t bytes) {
  return bytes >= least_weights_file && has_weights_ending(path);
}

fs::path model_at(const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (fs::is_directory(status)) return has_weights(name) ? fs::absolute(name, error) : fs::path();
  if (fs::is_regular_file(status)) {
    const bool is_weights =
        name.ends_with(".json") || fs::file_size(name, error) >= least_weights_file;
    return is_weights && !error ? fs::absolute(name, error) : fs::path();
  }
  if (std::count(name.begin(), name.end(), '/') != 1) return {};
  const Result<std::optional<sets::HubSnapshot>> snapshot = sets::find_in_hub_cache(name);
  return snapshot && *snapshot ? (*snapshot)->folder : fs::path();
}

std::vector<fs::path> named_models(std::span<const std::string> arguments,
                                   char* const* environment) {
  std::vector<fs::path> models;
  const auto consider = [&models](std::string_view name) {
    if (name.empty()) return;
    fs::path model = model_at(std::string(name));
    if (!model.empty() && std::find(models.begin(), models.end(), model) == models.end())
      models.push_back(std::move(model));
  };
  for (const std::string& argument : arguments) {
    consider(argument);
    consider(behind_equals(argument));
  }
  for (; environment != nullptr && *environment != nullptr; ++environment)
    consider(value_of_model_variable(*environment));
  return models;
}

std::vector<fs::path> small_files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (at->is_regular_file(unknown) && at->file_size(unknown) <= largest_small_file &&
        !has_weights_name(at->path()) && !unknown)
      files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace weightmap::cli::start
