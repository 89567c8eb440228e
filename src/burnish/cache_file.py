"""The cache on disk as one file, to be carried to another machine: a zip archive of the cache's own files.

    burnish cache export cache.zip          here
    burnish cache import cache.zip          there

What does not fit there (made by another version, for another processor) is left out, and the reason is said. An entry
is machine code: import a file only if you trust whoever made it as you trust a program.
"""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .errors import UserError
from .runtime.disk_cache import DiskCache, Entry, read_entry

NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}")
LARGEST = 64 << 20
"""Bytes of one entry."""


def described(shelf: DiskCache) -> list[str]:
    """How much is in it, for a person."""
    sizes = [size for _, size, _ in shelf.entries()]
    head = (f"{shelf.folder}: {len(sizes)} entries, {sum(sizes) / 1e6:.1f} MB of at most {shelf.limit / 1e6:.0f} MB")
    kinds: Counter[str] = Counter()
    for _, entry in read_all(shelf):
        kinds[entry.kind] += 1
    return [head, *(f"  {count} of {kind}" for kind, count in sorted(kinds.items()))]


def read_all(shelf: DiskCache) -> Iterator[tuple[Path, Entry]]:
    for _, _, path in shelf.entries():
        try:
            entry = read_entry(path.read_bytes())
        except OSError:
            continue  # deleted meanwhile
        if entry is not None:
            yield path, entry


def export_cache(shelf: DiskCache, file: Path) -> int:
    """Write all entries to a file, and say how many there are."""
    from .backends.graph_key import SOURCES

    if not file.parent.is_dir():
        raise UserError(f"{file} cannot be written: there is no folder {file.parent}.")
    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    count = 0
    try:
        with os.fdopen(handle, "wb") as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, entry in read_all(shelf):
                if entry.kind != SOURCES:  # which is about this machine's files
                    archive.write(path, f"{path.parent.name}/{path.name}")
                    count += 1
        os.replace(aside, file)
    except BaseException:
        os.unlink(aside)
        raise
    return count


def import_cache(shelf: DiskCache, file: Path) -> list[str]:
    """Take over what fits; what became of it, for a person."""
    from .backends.native_compile import made_here

    here, taken = made_here(), 0
    unfit: Counter[tuple[str, str]] = Counter()
    damaged = 0
    try:
        with zipfile.ZipFile(file) as archive:
            for item in archive.infolist():
                if not NAME.fullmatch(item.filename) or item.file_size > LARGEST:
                    raise UserError(f"{file} is not a file that `burnish cache export` wrote: it holds "
                                    f"{item.filename!r:.80}.")
                content = archive.read(item)
                entry = read_entry(content)
                if entry is None:
                    damaged += 1
                elif here.get(entry.kind) != entry.made:
                    unfit[entry.kind, entry.made] += 1
                else:
                    path = shelf.folder / item.filename
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    shelf.write(path, content)
                    taken += 1
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    shelf.trim()
    if shelf.why_not is not None:
        raise UserError(shelf.why_not)
    lines = [f"{taken} entries taken over into {shelf.folder}"]
    for (kind, made), count in unfit.items():
        lines.append(f"{count} of {kind} do not fit: {why_unfit(made, here.get(kind))}")
    if damaged:
        lines.append(f"{damaged} are damaged, or of another version of the cache")
    return lines


def why_unfit(made: str, here: str | None) -> str:
    if here is None:
        return "this version of Burnish keeps nothing of that kind"
    theirs, ours = made.split(), here.split()
    other = [word for word in theirs if word not in ours]
    wanted = [word for word in ours if word not in theirs]
    return f"they were made with {' '.join(other) or made}, and here it is {' '.join(wanted) or here}"
