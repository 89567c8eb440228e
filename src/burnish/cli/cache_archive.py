"""Export the disk cache to one file and import it on another machine: a zip archive of the cache's own files.

    burnish cache export cache.zip          here
    burnish cache import cache.zip          there

Entries that do not fit the other machine (made by another version, for another processor) are skipped, and the
reason is printed. An entry is machine code: import a file only if you trust its author as you trust a program.
Import uses a bounded amount of memory and disk whatever the file claims, and refuses what `burnish cache export` did
not write.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from ..runtime.disk.disk_cache import DiskCache, Entry, read_entry

NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}", re.ASCII)
WORDS = {
    "compiled graphs, ready to run": ("program",),
    "pieces of machine code for CPUs, which graphs share": ("object code", "watcher"),
    "pieces of machine code for GPUs": ("cubin",),
    "measurements of which library call or kernel is fastest": ("measured",),
    "digests of Burnish's own files": ("digest of sources",),
}
"""What entries hold, in a user's words, and their kinds."""

LARGEST = 64 << 20
"""Bytes of one entry, unpacked."""

TIMES_THE_LIMIT = 2
"""A file may unpack to this many times the cache's own limit: between two checks the cache slightly exceeds it."""

MOST_ENTRIES = 100_000
LINES_SHOWN = 8
UNREADABLE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""Exceptions of Python's archive reader for a damaged file."""


def described(cache: DiskCache) -> list[str]:
    """The cache's size and contents, for a person."""
    sizes = [size for _, size, _ in cache.entries()]
    head = f"{cache.folder}: {len(sizes)} entries, {sum(sizes) / 1e6:.1f} MB of at most {cache.limit / 1e6:.0f} MB"
    kinds: Counter[str] = Counter()
    for _, entry in read_all(cache):
        kinds[entry.kind] += 1
    described = Counter({what: sum(kinds[kind] for kind in of) for what, of in WORDS.items()})
    described["other"] = kinds.total() - described.total()
    return [head, *(f"{count:>8} {what}" for what, count in described.items() if count)]


def read_all(cache: DiskCache) -> Iterator[tuple[bytes, Entry]]:
    """The contents of each file of the cache, and its parsed entry."""
    for _, _, path in cache.entries():
        content = cache.read(path)  # None where it was deleted since, or is another user's
        try:
            entry = None if content is None else read_entry(content)
        except ValueError:
            continue
        if content is not None and entry is not None and cache.path_of(entry.name) == path:
            yield content, entry


def export_cache(cache: DiskCache, file: Path) -> int:
    """Write all entries to a file, and return how many there are."""
    from ..runtime.disk.compiler_identity import SOURCES

    if not file.parent.is_dir():
        raise UserError(f"{file} cannot be written: there is no folder {file.parent}.")
    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    count = 0
    try:
        with os.fdopen(handle, "wb") as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for content, entry in read_all(cache):
                if entry.kind != SOURCES:  # specific to this machine's files
                    archive.writestr(f"{entry.name[:2]}/{entry.name[2:]}", content)
                    count += 1
        os.replace(aside, file)
    except BaseException:
        os.unlink(aside)
        raise
    return count


def import_cache(cache: DiskCache, file: Path) -> list[str]:
    """Import the entries that fit; returns a report for a person. Nothing is imported from a file that is refused."""
    from ..compiler.compile_graph import entry_versions

    here, taken = entry_versions(), 0
    unfit: Counter[tuple[str, str]] = Counter()
    try:
        with zipfile.ZipFile(file) as archive:
            check_archive(archive, file, TIMES_THE_LIMIT * cache.limit)
            damaged = 0
            for item in archive.infolist():
                entry = checked_entry(archive.read(item), item.filename, file)
                if entry is None:
                    damaged += 1
                elif here.get(entry.kind) != entry.made:
                    unfit[entry.kind, entry.made] += 1
            for item in archive.infolist():
                content = archive.read(item)
                entry = checked_entry(content, item.filename, file)
                if entry is not None and here.get(entry.kind) == entry.made:
                    cache.write(cache.path_of(entry.name), content)
                    taken += 1
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{file} cannot be read: {error}. Write it again with `burnish cache export`.") from error
    cache.trim()
    if cache.why_not is not None:
        raise UserError(cache.why_not)
    return [f"{taken} entries taken over into {cache.folder}", *why_left_out(unfit, damaged, here)]


def check_archive(archive: zipfile.ZipFile, file: Path, limit: int) -> None:
    """Checks the archive's directory before anything is unpacked. No entry unpacks to more than its directory entry
    says."""
    written = f"{file} is not a file that `burnish cache export` wrote"
    items = archive.infolist()
    if len(items) > MOST_ENTRIES:
        raise UserError(f"{written}: it has {len(items)} entries, and at most {MOST_ENTRIES} are taken.")
    seen: set[str] = set()
    for item in items:
        if not NAME.fullmatch(item.filename):
            raise UserError(f"{written}: it holds {item.filename!r:.80}.")
        if item.filename in seen:
            raise UserError(f"{written}: it holds {item.filename!r:.80} twice.")
        if item.file_size > LARGEST:
            raise UserError(
                f"{file} is not imported: its entry {item.filename!r:.80} unpacks to {mega(item.file_size)}"
                f", and at most {mega(LARGEST)} are taken."
            )
        if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or item.flag_bits & 1:
            raise UserError(f"{written}: its entry {item.filename!r:.80} is packed in another way.")
        seen.add(item.filename)
    total = sum(item.file_size for item in items)
    if total > limit:
        raise UserError(
            f"{file} is not imported: it unpacks to {mega(total)}, and at most {mega(limit)} are taken, "
            f"{TIMES_THE_LIMIT} times what the cache holds. Empty the cache it comes from "
            f"(`burnish cache clear`), run there what you need here, and export it again."
        )


def checked_entry(content: bytes, name: str, file: Path) -> Entry | None:
    """The parsed entry of the archive; None where it is damaged or of another version."""
    try:
        entry = read_entry(content)
    except ValueError as error:
        raise UserError(
            f"{file} is not a file that `burnish cache export` wrote: of its entry {name}, {error}. "
            f"Nothing was taken over."
        ) from error
    if entry is not None and entry.name != name.replace("/", ""):
        raise UserError(
            f"{file} is not a file that `burnish cache export` wrote: its entry {name} holds what belongs "
            f"under another name, {entry.name!r:.80}. Nothing was taken over."
        )
    return entry


def why_left_out(unfit: Counter[tuple[str, str]], damaged: int, here: dict[str, str]) -> list[str]:
    lines = [
        f"{count} of {shown(kind)} do not fit: {why_unfit(shown(made), here.get(kind))}"
        for (kind, made), count in unfit.most_common(LINES_SHOWN)
    ]
    if len(unfit) > LINES_SHOWN:
        rest = sum(unfit.values()) - sum(count for _, count in unfit.most_common(LINES_SHOWN))
        lines.append(f"{rest} others do not fit either")
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


def shown(text: str) -> str:
    """Text from the file, safe for a terminal."""
    cut = text if len(text) <= 300 else f"{text[:300]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def mega(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
