// The version of these headers. Before 1.0 a change of the minor version may change the interface;
// a shared library of another minor version is not found (its soname has both numbers). Names do
// not contain the version: plug-ins of one process that have different versions link the static
// library, which exports nothing (docs/building.md).
#pragma once

#define WEIGHTMAP_VERSION_MAJOR 0
#define WEIGHTMAP_VERSION_MINOR 1
#define WEIGHTMAP_VERSION_PATCH 0
#define WEIGHTMAP_VERSION "0.1.0"
