#!/bin/bash
# Linux 6.18 with FUSE: a mapping with MAP_FIXED that the file system refuses has removed what was
# mapped there before.
#
# A program that reserves addresses and maps files into them does so to have no hole between that
# another thread's mapping could take. The kernel takes the old mapping away before it asks the file
# system, and FUSE refuses a shared mapping of a file that is opened with direct_io (ENODEV), as
# bindfs opens them with -o direct_io. So behind the error the addresses are free: a second try with
# MAP_FIXED | MAP_PRIVATE may replace the stack of a thread that has begun meanwhile, and so may the
# release of the reservation. MAP_FIXED_NOREPLACE tells whether somebody has come.
#
# Seen (Linux 6.18.44, bindfs 1.14.7-1 with libfuse3 of Debian 12, Python 3.11):
#   reserved: there
#   MAP_SHARED | MAP_FIXED: ENODEV; reserved: gone
#   MAP_PRIVATE: can be mapped
#
# Ends with 1 if any of these lines changes. Needs root and /dev/fuse.
set -euo pipefail
folder=$(mktemp -d)
trap 'umount -l "$folder/upper" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q bindfs=1.14.7-1 libfuse3-3 >/dev/null
for package in *.deb; do dpkg -x "$package" package; done
mkdir lower upper
head -c 65536 /dev/urandom >lower/file
library=$(dirname "$(find package -name 'libfuse3.so.3' | head -1)")
LD_LIBRARY_PATH=$library package/usr/bin/bindfs -o direct_io lower upper

cat >program.py <<'PROGRAM'
import ctypes
import errno
import mmap
import os

PAGE = mmap.PAGESIZE
FIXED = 0x10
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def mapped(address, flags, descriptor):
    got = libc.mmap(address, PAGE, mmap.PROT_READ, flags, descriptor, 0)
    return None if got == ctypes.c_void_p(-1).value else got


def state():
    return "there" if libc.mincore(reserved, PAGE, ctypes.create_string_buffer(1)) == 0 else "gone"


file = os.open("upper/file", os.O_RDONLY)
reserved = mapped(None, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
print("reserved:", state())
assert mapped(reserved, mmap.MAP_SHARED | FIXED, file) is None
print(f"MAP_SHARED | MAP_FIXED: {errno.errorcode[ctypes.get_errno()]}; reserved: {state()}")
print("MAP_PRIVATE:", "can be mapped" if mapped(None, mmap.MAP_PRIVATE, file) else "refused")
PROGRAM

cat >expected <<'SEEN'
reserved: there
MAP_SHARED | MAP_FIXED: ENODEV; reserved: gone
MAP_PRIVATE: can be mapped
SEEN

python3 program.py | tee seen
diff expected seen
