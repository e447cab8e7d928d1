#include "runtime/services/fetch/files_beside.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

// What transformers reads of a folder; no code.
constexpr std::array<const char*, 14> names_beside = {"config.json",
                                                      "generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer_config.json",
                                                      "tokenizer.model",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "vocab.txt",
                                                      "merges.txt",
                                                      "chat_template.json",
                                                      "chat_template.jinja",
                                                      "preprocessor_config.json",
                                                      "processor_config.json"};

// Also a web page in place of what is not there.
bool is_absent(const Error& error) {
  return error.code == ErrorCode::not_found || error.code == ErrorCode::unsupported;
}

}  // namespace

bool FilesBeside::has_name(std::string_view name) noexcept {
  return std::find(names_beside.begin(), names_beside.end(), name) != names_beside.end();
}

bool lies_beside_models(const RangeSource& source) {
  return FilesBeside::has_name(std::filesystem::path(source.name()).filename().native());
}

Result<void> FilesBeside::bring(const RangeSource& lead, const std::filesystem::path& folder,
                                const FetchOptions& options) {
  if (dynamic_cast<const WholeSource*>(&lead) == nullptr) return {};
  for (const char* name : names_beside) {
    if (!options.sha256.empty() && !options.sha256.contains(name)) continue;
    TRY_ASSIGN(const std::unique_ptr<RangeSource> source, lead.sibling(name));
    auto file = std::make_unique<WholeFetch>(folder / name, options);
    Result<FetchReport> report = file->bring(*source, dynamic_cast<WholeSource&>(*source));
    if (!report && is_absent(report.error())) continue;
    if (!report) return about_file(std::move(report.error()), folder / name);
    reports_.push_back(std::move(*report));
    files_.push_back(std::move(file));
  }
  return {};
}

Result<void> FilesBeside::publish() {
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (Result<void> named = files_[i]->publish(true); !named)
      return about_file(std::move(named.error()), reports_[i].path);
  return {};
}

}  // namespace weightmap
