"""What /proc/self says of the memory of this process."""


def mapping_of(tensor):
    """The fields of the line of /proc/self/maps that has a torch tensor's first byte."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return line.rstrip("\n").split(maxsplit=5)
    raise AssertionError("is in no mapping")


def permissions(tensor):
    """Of the mapping that a tensor lies in."""
    return mapping_of(tensor)[1]


def anonymous_bytes():
    """How much memory the process has that is no file's."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous:"))
