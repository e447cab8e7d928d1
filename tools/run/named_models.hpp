// Which models a command is about to load, judged by its words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace weightmap::cli::start {

// Returns the files and folders that a command names, each once: in an argument, behind the "=" of
// one (--model=X, model=X), or in a variable of the environment with MODEL in its name. A name is
// the path of a file or folder, or "org/name" in the cache of huggingface_hub. What is no model is
// found out when it is opened.
std::vector<std::filesystem::path> named_models(std::span<const std::string> arguments,
                                                char* const* environment);

// Returns the file or folder of one such name; empty if there is none.
std::filesystem::path model_at(const std::string& name);

// True for a file that has the ending of weights and is too large for anything else.
bool is_weights_file(const std::string& path, std::uintmax_t bytes);

// Returns the regular files of a model's folder that are no weights: configuration, tokenizer.
std::vector<std::filesystem::path> small_files_of(const std::filesystem::path& folder);

}  // namespace weightmap::cli::start
