"""What /proc/self says of the memory of this process."""


def smaps(process="self"):
    """Of each mapping "begin", "end", "permissions", "file", "flags", and KiB by their names."""
    found = []
    with open(f"/proc/{process}/smaps") as lines:
        for line in lines:
            first, *rest = line.split(maxsplit=5)
            if not first.endswith(":"):
                begin, end = (int(part, 16) for part in first.split("-"))
                file = rest[4].rstrip("\n") if len(rest) > 4 else ""
                found.append({"begin": begin, "end": end, "permissions": rest[0], "file": file})
            elif first == "VmFlags:":
                found[-1]["flags"] = line.split()[1:]
            elif rest[-1] == "kB":
                found[-1][first.rstrip(":")] = int(rest[0])
    return found


def mappings_of(path, process="self"):
    """Those of a file."""
    return [mapping for mapping in smaps(process) if mapping["file"] == str(path)]


def mapping_at(address):
    """The one that has an address."""
    for mapping in smaps():
        if mapping["begin"] <= address < mapping["end"]:
            return mapping
    raise AssertionError("is in no mapping")


def mapping_of(tensor):
    """The one that has a torch tensor's first byte."""
    return mapping_at(tensor.data_ptr())


def permissions(tensor):
    """Of the mapping that a tensor lies in."""
    return mapping_of(tensor)["permissions"]


def anonymous_bytes():
    """How much memory the process has that is no file's."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous:"))
