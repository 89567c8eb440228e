"""The context manager of ``report`` and ``trace``: records a run, and writes it to a file at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, warn
from .exclude_from_capture import exclude_from_capture

if TYPE_CHECKING:
    from typing import Self

    from .record_run import RunRecorder


class RecordedFile:
    """The file is written at the end, also if the block raises; that error is not replaced by one of writing."""

    def __init__(self, path: str | os.PathLike[str], run: RunRecorder):
        self.path, self.run = Path(path).absolute(), run  # the program may change its directory
        if not self.path.parent.is_dir():
            raise UserError(f"{path} cannot be written: there is no folder {self.path.parent}.")

    def write(self) -> None:
        raise NotImplementedError

    @exclude_from_capture
    def __enter__(self) -> Self:
        self.run.__enter__()
        return self

    @exclude_from_capture
    def __exit__(self, kind: Any = None, *error: Any) -> None:
        self.run.__exit__(kind, *error)
        try:
            self.write()
        except Exception as failure:
            if kind is None:
                raise
            warn(f"burnish: {self.path} was not written: {failure}")
