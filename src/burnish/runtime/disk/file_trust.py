"""Whose files are believed: code is only loaded from files that no other user can have written.

    why_not_trusted(path)          None, or "… belongs to another user", "… can be written to by others"
    read_trusted(path)             the bytes of a file, or Distrusted

The rules, for a file and the folders it is asked for in:

* it belongs to this user, or to root, who can do everything anyway;
* neither its group nor everybody can write to it;
* a file is a plain one: no link to somewhere else, no device, no pipe that a reader would wait at.

The file is looked at after it has been opened, so that it cannot be exchanged in between. On systems without user
numbers (Windows) a folder below the user's own is protected by the system's rights, which Python does not tell: there
all files count as this user's.
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
    """What is in a file, if it and the folders are this user's. `private`: nor may others read it. OSError where it
    cannot be read at all."""
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
    """Why other users may have written what is there."""
    if not has_users():
        return None
    if status.st_uid not in (os.geteuid(), ROOT):
        return f"{path} belongs to another user (number {status.st_uid}; this is {os.geteuid()})"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"{path} can be written to by others"
    return None


def has_users() -> bool:
    return hasattr(os, "geteuid")
