"""Paths that are no files, and files that only the file system makes strange."""

import os
import socket
import tempfile

import zip_builder as z
from catalogue import case, opens, refuse
from index_cases import Link, Made
from torch_files import small, torch_file


def socket_at(path):
    folder, name = os.path.split(path)
    before = os.getcwd()
    os.chdir(folder)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    finally:
        os.chdir(before)


def can_read_anything():
    """Whether permissions mean nothing to this user."""
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        return os.access(file.name, os.R_OK)


def written_and(then):
    def make(path):
        torch_file(small()).write(path)
        then(path)
    return make


def add_cases():
    model = small()
    good = torch_file(model)
    add = lambda name, make, verdict: case(f"files/{name}", Made(make), verdict)
    link = lambda name, to, verdict: case(f"files/{name}", Link(to), verdict)
    no = lambda *words: refuse("not_a_checkpoint", *words)
    case("files/empty", z.Built(), refuse("not_a_checkpoint", "empty"))
    no_checkpoint = no("is a folder in which there is no checkpoint")
    add("folder", os.mkdir, no_checkpoint)
    add("fifo", os.mkfifo, no("regular file"))
    add("socket", socket_at, no("socket", "regular file"))
    link("link_to_null", "/dev/null", no("regular file"))
    link("link_to_zero", "/dev/zero", no("regular file"))
    link("link_to_terminal", "/dev/ptmx", no("regular file"))
    link("link_to_proc", "/proc/self/status", no("empty"))
    link("link_to_memory", "/proc/self/mem", no("empty"))
    add("link_to_itself", lambda path: os.symlink(os.path.basename(path), path),
        refuse("io", "levels of symbolic links"))
    link("link_to_nothing", "nowhere", refuse("io", "No such file"))
    link("link_to_folder", ".", refuse("invalid_argument", "is a folder of several checkpoints"))
    add("link.pt", lambda path: (good.write(path + ".target"),
                                 os.symlink(os.path.basename(path) + ".target", path)),
        opens(model.tensors))
    add("missing", lambda path: None, refuse("io", "No such file"))
    add("without_permission.pt", written_and(lambda path: os.chmod(path, 0)),
        opens(model.tensors) if can_read_anything() else refuse("io", "Permission denied"))
    add("only_to_read.pt", written_and(lambda path: os.chmod(path, 0o444)), opens(model.tensors))
    # The path that the operating system would see ends at the zero byte.
    add("nul.pt", good.write, opens(model.tensors))
    case("files/nul.pt\0", Made(lambda path: None), refuse("invalid_argument", "zero byte"))
    add("missing_folder/file.pt", lambda path: os.rmdir(os.path.dirname(path)),
        refuse("io", "No such file"))
    case("files/" + "n" * 300, Made(lambda path: None), refuse("io", "name too long"))
    case("files/a_file/as_a_folder.pt",
         Made(lambda path: (os.rmdir(os.path.dirname(path)), good.write(os.path.dirname(path)))),
         refuse("io", "Not a directory"))
    add("name_of\x1b[31m\ncontrol_characters.pt", good.write, opens(model.tensors))
    add("cut_name_of\x1b[31m\ncontrol_characters.pt",
        lambda path: good.changed(good.bytes()[:1000]).write(path),
        refuse("corrupt", "truncated"))
    add("two_names.pt", written_and(lambda path: os.link(path, path + ".other")),
        opens(model.tensors))
    for size in (1, 4095, 4096, 4097, 65535, 65536, 65537):
        case(f"files/zeros_of_{size}", z.Built().changed(bytes(size)),
             refuse("not_a_checkpoint", f"{min(size, 512)} zero bytes"))
    for more in (0, 1, 2):
        short = -(good.size + more) % 4096
        model_of_page = torch_file(model, comment=b"c" * short)
        case(f"files/size_modulo_page_{more}.pt", model_of_page, opens(model.tensors))
