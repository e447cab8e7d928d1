// The parsers of torch's formats; see FormatRow::parse.
#pragma once

#include "runtime/base/zip/directory.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/torch/archive_records.hpp"

namespace weightmap::torch {

// torch.save()'s format since 1.6: a zip archive with a pickle and a record per storage.
Result<format::Parsed> parse_archive(format::Input& input, const OpenOptions& options,
                                     OpenStats& stats, std::pmr::memory_resource& memory);
// Reads the central directory again and compares each storage's offset with its local header.
Result<void> verify_archive_headers(format::Input& input, const catalog::Catalog& catalog,
                                    const Limits& limits);

// An archive of torch.export.save() or package_pt2() (.pt2): a zip archive with a record for each
// storage and JSON that states which tensors lie in them (torch/export/pt2_archive). The directory
// and the small records were read.
Result<format::Parsed> parse_exported(format::Input& input, const zip::Directory& directory,
                                      ArchiveRecords records, const OpenOptions& options,
                                      OpenStats& stats, std::pmr::memory_resource& memory);

// The format of torch.save() before torch 1.6, and of later versions with
// _use_new_zipfile_serialization=False. It is five pickles (a magic number, 1001, facts about the
// machine, the object, the keys of the storages), then for each storage its element count in eight
// bytes and the elements, without padding. Bytes after that are ignored.
Result<format::Parsed> parse_legacy(format::Input& input, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);
// Reads the stream again and compares the place of each storage.
Result<void> verify_legacy(format::Input& input, const catalog::Catalog& catalog,
                           const Limits& limits);

// A file that is a pickle, of pickle.dump() or joblib.dump(). Its tensors are the arrays of numpy
// whose elements lie in it. Reads the file up to STOP into memory, and calls nothing. Fails as
// parse_archive() does.
Result<format::Parsed> parse_pickle(format::Input& input, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
