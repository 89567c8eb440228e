"""File trust: code is loaded only from files that no other user can have written.

    why_not_trusted(path)          None, or "… belongs to another user", "… can be written to by others"
    read_trusted(path)             the bytes of a file, or Distrusted

The rules, for a file and for the folders that the caller names:

* it belongs to this user, or to root, who has all rights anyway;
* neither its group nor others can write to it;
* a file is a regular one: no symbolic link, no device, no pipe that would block a reader.

The checks run on the opened file, so that it cannot be exchanged in between. Systems without user numbers (Windows)
protect folders below the user's own by access rights that Python does not show: there all files count as this
user's.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOT = 0
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
OPENING = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


class Distrusted(Exception):
    """A file that another user may have written. The message says why."""


def read_trusted(path: Path, *folders: Path, private: bool = False) -> bytes:
    """The contents of a file, if it and the folders are this user's. With `private`, others must not be able to read
    it. OSError where it cannot be read at all."""
    for folder in folders:
        if (why := why_not_trusted(folder, os.stat(folder))) is not None:
            raise Distrusted(why)
    try:
        handle = os.open(path, OPENING)
    except OSError:
        if path.is_symlink():
            raise Distrusted(f"{path} is a link to another file") from None
        raise
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Distrusted(f"{path} is not a plain file")
        why = why_not_trusted(path, status)
        if why is None and private and has_users() and status.st_mode & READABLE_BY_OTHERS:
            why = f"{path} can be read by others"
        if why is not None:
            raise Distrusted(why)
        return file.read()


def why_not_trusted(path: Path, status: os.stat_result) -> str | None:
    """Why other users may have written it; None if they cannot."""
    if not has_users():
        return None
    if status.st_uid not in (os.geteuid(), ROOT):
        return f"{path} belongs to another user (number {status.st_uid}; this is {os.geteuid()})"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"{path} can be written to by others"
    return None


def has_users() -> bool:
    return hasattr(os, "geteuid")
