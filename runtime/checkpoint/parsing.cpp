#include "runtime/checkpoint/parsing.hpp"

#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/formats/format/members.hpp"

namespace weightmap {

Result<void> Parsing::identify(std::size_t leading) {
  for (std::size_t i = 0; i < leading; ++i)
    inputs_.emplace_back(sources_[i].content(member_), sources_[i].base(), sources_.copies_base(),
                         made_->memory);
  if (leading == 0) return {};
  const SourceFile& first = sources_.front();
  Result<const FormatRow*> row =
      format_of(inputs_.front(), first.content_name(), options_.limits, stats_);
  if (!row) return tl::unexpected<Error>(first.about_content(std::move(row.error())));
  row_ = *row;
  return {};
}

Result<void> Parsing::read_first() {
  if (row_ == nullptr) return {};
  Result<void> read = parse_first();
  if (!read) return tl::unexpected<Error>(sources_.front().about_content(std::move(read.error())));
  return {};
}

// What a file names lies in the folder beside it, and a member lies in none.
Result<void> Parsing::check_is_alone() const {
  if (!sources_.front().member || (row_->parse != nullptr && !made_->content.split)) return {};
  return failure(
      ErrorCode::unsupported,
      (row_->parse == nullptr ? std::string(row_->sentence)
                              : "is one of " + std::to_string(made_->content.split->count) +
                                    " files of a checkpoint") +
          ", and files beside a member of an archive are not looked for; extract them "
          "all and open that");
}

Result<void> Parsing::parse_first() {
  ParsedFiles& made = *made_;
  const bool has_content = row_->parse != nullptr;
  if (has_content) {
    TRY_ASSIGN(made.content, parse_file(row_, inputs_.front(), options_, stats_, made.memory));
  }
  TRY(check_is_alone());
  if (sources_.front().member) format::place_in_file(made.content, *sources_.front().member);
  if (row_->name_files == nullptr) return {};
  TRY_ASSIGN(named_, row_->name_files({sources_, inputs_, has_content ? &made.content : nullptr,
                                       options_, stats_, made.memory}));
  if (!named_ || !has_content) return {};
  // The first file is parsed again among all, and of this time only the reads count.
  made_ = std::make_unique<ParsedFiles>();
  const OpenStats before = std::exchange(stats_, {});
  stats_.reads = before.reads;
  stats_.bytes_read = before.bytes_read;
  return {};
}

Result<format::Parsed> Parsing::parse_all() {
  return named_ ? named_->parse(sources_, options_, stats_, made_->memory)
                : parse_shards(sources_, 0, nullptr, options_, stats_, made_->memory);
}

Result<std::unique_ptr<ParsedFiles>> Parsing::finish() && {
  if (named_ || row_ == nullptr) {
    Result<format::Parsed> parsed = parse_all();
    if (!parsed) return tl::unexpected<Error>(sources_.front().about(std::move(parsed.error())));
    made_->content = std::move(*parsed);
  }
  for (format::Input& input : inputs_)
    if (input.cache) input.release(stats_);
  return std::move(made_);
}

}  // namespace weightmap
