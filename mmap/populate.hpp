// MADV_POPULATE_READ, which maps what it reads and fails without a signal. Linux 5.14; older
// headers do not name it.
#pragma once

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;
#endif
