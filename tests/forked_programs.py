"""Runs programs in processes of their own, forked from one that has imported what all of them need.

    server = ProgramServer("import torch, burnish", {"LD_PRELOAD": ...})
    server.run("print(torch.ones(3).sum())").stdout
    server.close()

Importing torch takes longer than most programs of a test. A program ends as any other: its threads are waited for, and
what it has registered for its end is called. All programs of a server have the same seed for hashes and similar
addresses, so they cannot show that something is found again by another process.
"""

import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path


class ProgramServer:
    def __init__(self, prepare: str, environment: dict[str, str]):
        self.process = subprocess.Popen(
            [sys.executable, __file__, prepare],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, code: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            self.process.stdin.write(json.dumps([code, str(out), str(err)]).encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                self.close()
                raise subprocess.TimeoutExpired(code, timeout)
            status = self.process.stdout.readline()
            assert status, "the server has ended"
            return subprocess.CompletedProcess(code, int(status), out.read_text(), err.read_text())

    def close(self) -> None:
        """Ends the server, and a program that still runs."""
        with self.process:
            os.killpg(self.process.pid, signal.SIGKILL)


def next_program(prepare: str) -> str | None:
    """Serves until its input ends, and returns None. In each forked process it returns the program to run there."""
    gc.disable()  # nothing that is imported becomes garbage, and programs need not go through it
    exec(prepare, {})
    gc.freeze()
    gc.enable()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in requests:
        code, *paths = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(replies)
            for stream, path in enumerate(paths, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
            return code
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(replies, b"%d\n" % status)
    return None


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -c` has it
    program = next_program(sys.argv[1])
    if program is not None:
        sys.argv = ["-c"]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))
