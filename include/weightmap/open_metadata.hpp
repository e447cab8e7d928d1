// Opens a remote checkpoint for its metadata: names, shapes, offsets, the value tree.
//
//   auto checkpoint = weightmap::open_metadata(std::move(source));  // range_source.hpp
//   if (!checkpoint) return tl::unexpected(checkpoint.error());
//   for (const weightmap::NamedTensor tensor : checkpoint->tensors()) list(tensor.name);
#pragma once

#include <memory>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/options.hpp"
#include "weightmap/range_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Opens a remote checkpoint, and reads only its metadata: tensors(), find(), root() and info() are
// those of Checkpoint::open() of the same file. A few requests get it, except where some of it is
// beside each tensor: in a legacy stream, npz and torch.distributed.checkpoint; these requests are
// made together. Files of a set are found beside the first one by RangeSource::sibling().
//
// Paths (opened_paths(), source()) and errors are RangeSource::name(). state() is always `current`,
// since all reads are of one version, or fail. gather() and copy_bytes() fetch the bytes that they
// need, each time, and only in the process that opened it: after fork() they fail with unsupported.
// The memory of views and of mapping() is not there: reading it raises SIGSEGV. What would pass it
// on or read it fails with unsupported: lend(), copy_on_write(), writable_bytes(), demand(),
// verify_crc(), Warmer, cuda::Uploader, residency(), check_unchanged(); and reopen() does.
//
// The checkpoint owns the source. Fails as Checkpoint::open() does; with io as `source` does; with
// unsupported for options that read more than metadata (`writable`, `populate`, `locked`, `verify`
// crc), or if storages are compressed. The environment's wishes for those, and `protection`, are
// without effect.
WEIGHTMAP_API Result<Checkpoint> open_metadata(std::unique_ptr<RangeSource> source,
                                               const OpenOptions& options = {});

}  // namespace weightmap
