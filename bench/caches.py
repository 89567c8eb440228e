"""Where compilers keep what they made, so that none finds what it, or another one, made before.

    os.environ.update(variables(folder_of("/tmp/run", "torch.compile:freezing")))

A contestant has one folder for a model. Its first call, timed in a process of its own, finds the folder empty; the
process in which all take turns may use what that left there.
"""

from __future__ import annotations

from pathlib import Path


def variables(folder: Path) -> dict[str, str]:
    """The environment that sends every cache we know of there."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "BURNISH_CACHE_DIR": str(folder / "burnish"),
        "XDG_CACHE_HOME": str(folder / "user"),
    }


def folder_of(caches: str | Path, contestant: str) -> Path:
    return Path(caches) / "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in contestant)
