"""Disk cache of kernels, programs and measurements: entries found by kind and cache key, the least recently used
trimmed.

    cache = DiskCache(folder)
    cache.put("kernel", text, object_code)
    cache.get("kernel", text)                  the bytes, or None

The first line of a key says what made the entry and for what. It is stored in the entry, for `cache_archive`.

A file may be truncated, copied from elsewhere, renamed or written by two processes at once; the disk may be full. So
an entry is written to a temporary file and renamed. It starts with the digest of the rest, and contains the digest
of its own kind and key. An entry that does not match is ignored. Entries hold machine code: they are read only if no
other user can have written them (`file_trust`); otherwise a warning says so once. When the cache is too large, the
least recently used entries are deleted. Nothing here raises, and nothing is unpickled.

    burnish cache 3 | SHA-256 of the rest | ["kernel", first line of the key, SHA-256 of kind and key] | data
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ... import events, settings
from ...concurrency.first_value_cache import once
from ...errors import warn
from .file_trust import Distrusted, read_trusted, why_not_trusted

MAGIC = b"burnish cache 3\n"
DIGEST = 32
LIMIT = 256 << 20
"""Bytes on disk."""

KEPT = 0.8
"""The fraction of the limit that is left after trimming."""

LOOK_EVERY = 200
"""A process checks the cache's size each time it has written this many entries."""

LOOK_AGAIN = 3600.0
"""Seconds after which the next process checks the size when it writes its first entry. With 14,000 entries, a check
takes 0.1 s."""

ELSEWHERE = "Set BURNISH_CACHE_DIR to a folder of yours, or BURNISH_CACHE=0"

LOOKED = "looked"
"""The file whose modification time is that of the last check."""


class Entry(NamedTuple):
    kind: str
    made: str
    """The first line of its key."""
    name: str
    """The digest of its kind and its whole key, by which it is found. Storing the key would make the cache four times
    as large: a kernel's key is its text."""
    data: bytes


def name_of(kind: str, key: str) -> str:
    return hashlib.sha256(f"{kind}\n{key}".encode()).hexdigest()


def written_entry(kind: str, key: str, data: bytes) -> bytes:
    head = [kind, key.partition("\n")[0], name_of(kind, key)]
    body = json.dumps(head).encode() + b"\n" + data
    return MAGIC + hashlib.sha256(body).digest() + body


def read_entry(content: bytes) -> Entry | None:
    """Parses a file. None where it is damaged or of another version; ValueError where it is intact but `written_entry`
    did not write it."""
    body = content[len(MAGIC) + DIGEST :]
    if content[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != content[len(MAGIC) : len(MAGIC) + DIGEST]:
        return None
    head, _, data = body.partition(b"\n")
    try:
        parts = json.loads(head)
    except RecursionError:
        parts = None
    if type(parts) is not list or len(parts) != 3 or any(type(part) is not str for part in parts):
        raise ValueError(f"its head is {head!r:.60}")
    return Entry(*parts, data)


class DiskCache:
    def __init__(self, folder: Path, limit: int = LIMIT):
        self.folder, self.limit = folder, limit
        self.written = 0
        self.why_not = self._why_not()
        """Why it is not used, in words; None where it is used."""
        self.refused: set[str] = set()
        """What was not loaded because another user may have written it, in words."""

    def _why_not(self) -> str | None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError as error:
            return f"{self.folder} cannot be used: {error.strerror}. {ELSEWHERE}"
        why = why_not_trusted(self.folder, status)
        if why is None:
            return None
        return (
            f"{why}, and code is only loaded from a folder that no other user can write to: make the folder yours "
            f"(`chown`, and `chmod 700 {self.folder}`), or set BURNISH_CACHE_DIR to another one"
        )

    def path(self, kind: str, key: str) -> Path:
        return self.path_of(name_of(kind, key))

    def path_of(self, name: str) -> Path:
        return self.folder / name[:2] / name[2:]

    def get(self, kind: str, key: str) -> bytes | None:
        if self.why_not is not None:
            return None
        name = name_of(kind, key)
        path = self.path_of(name)
        content = self.read(path)
        if content is None:
            return None
        entry = None
        with contextlib.suppress(ValueError):
            entry = read_entry(content)
        if entry is None or entry.name != name:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry.data

    def read(self, path: Path) -> bytes | None:
        """The contents of a file, if it is this user's."""
        try:
            return read_trusted(path, self.folder, path.parent)
        except OSError:
            return None
        except Distrusted as error:
            self.refuse(str(error))
            return None

    def refuse(self, why: str) -> None:
        """Warn once, not for each of a thousand entries."""
        is_first = not self.refused
        self.refused.add(why)
        if is_first:
            text = (
                f"{why}. It is not loaded, for code is only loaded from files that no other user can have "
                f"written: what it may hold is compiled again. `burnish cache clear` deletes all entries of "
                f"{self.folder}. This is said once."
            )
            events.emit("cache.refused", text=text)
            tell(text)

    def turn_off(self, why: str) -> None:
        self.why_not = why
        events.emit("cache.off", text=why)
        tell(f"The cache on disk is off, so each process compiles everything again: {why}.")

    def put(self, kind: str, key: str, data: bytes) -> None:
        self.write(self.path(kind, key), written_entry(kind, key, data))

    def write(self, path: Path, content: bytes) -> None:
        if self.why_not is not None:
            return
        aside = None
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=path.parent)
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(aside, path)
        except OSError as error:
            if aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
            # Stop after the first error: a full or read-only disk will fail for the next entry too.
            self.turn_off(f"{self.folder} cannot be written to: {error.strerror}. {ELSEWHERE}")
            return
        self.written += 1
        if self.written % LOOK_EVERY == 0 or self.written == 1 and self.is_time_to_look():
            self.trim()

    def is_time_to_look(self) -> bool:
        """Also records that this process checks now."""
        mark = self.folder / LOOKED
        with contextlib.suppress(OSError):
            if abs(time.time() - mark.stat().st_mtime) < LOOK_AGAIN:
                return False
        with contextlib.suppress(OSError):
            mark.touch(mode=0o600)
        return True

    def entries(self) -> Iterator[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of each."""
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def trim(self) -> None:
        """Delete the least recently used entries, where there are too many."""
        found = sorted(self.entries())
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in found:
            if total <= KEPT * self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size

    def clear(self) -> int:
        """Returns how many entries there were."""
        count = 0
        for _, _, path in list(self.entries()):
            with contextlib.suppress(OSError):
                path.unlink()
                count += 1
        return count


def tell(text: str) -> None:
    """A warning, without effect where a filter makes it an error: the program is right without a cache."""
    with contextlib.suppress(UserWarning):
        warn(text, UserWarning)


def disk_cache() -> DiskCache | None:
    """The cache in use, or None where the setting `cache` is off."""
    current = settings.current()
    return _opened(current.cache_dir or default_folder()) if current.cache else None


@once
def _opened(folder: Path) -> DiskCache:
    made = DiskCache(folder)
    if made.why_not is not None:
        made.turn_off(made.why_not)
    return made


def default_folder() -> Path:
    """This system's folder for caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "burnish"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "burnish" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "burnish"
