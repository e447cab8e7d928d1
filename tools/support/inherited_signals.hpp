// The signals of writes that fail, which this program takes as errors.
#pragma once

namespace weightmap::cli {

// Ignores SIGPIPE and SIGXFSZ: a reader that leaves (| head) then causes EPIPE, which Output treats
// as the end of the work, and a file beyond RLIMIT_FSIZE is an error of the write.
void ignore_write_signals() noexcept;

// Gives them the meaning that they had before, for a program that takes this one's place.
void restore_write_signals() noexcept;

}  // namespace weightmap::cli
