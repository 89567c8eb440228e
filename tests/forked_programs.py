"""Runs programs in processes of their own, forked from one that has imported what all of them need.

    run_program("import torch, burnish; print(burnish.compile(torch.sin)(torch.ones(3)))").stdout
    run_program("import sys, torch, burnish; print(len(sys.modules))", prepare=TORCH).stdout

    server = ProgramServer("import torch, burnish", {"LD_PRELOAD": ...})
    server.run("print(torch.ones(3).sum())").stdout
    server.close()

Importing torch and the compiler takes longer than most programs of a test. A program ends as any other: its threads
are waited for, and what it has registered for its end is called. Only with READY, its objects are not freed. All
programs of a server have the same seed for hashes and similar addresses, so they cannot show that something is found
again by another process: TORCH has two servers, which take turns.
"""

import atexit
import functools
import gc
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

TORCH = "import torch"
"""For programs about what is imported, for those that change something before or start threads, and for those that
find what another one has written."""
READY = """
import importlib
import burnish
from burnish.compiler import background_imports

for name in (*background_imports.TO_READ, *background_imports.TO_COMPILE):
    importlib.import_module(name)
assert burnish.settings._process is None, "an import has read the environment, which programs set"
"""


class ProgramServer:
    def __init__(self, prepare: str, environment: dict[str, str]):
        self.process = subprocess.Popen(
            [sys.executable, __file__, prepare],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(
        self,
        code: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        folder: str | Path | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as kept:
            out, err = Path(kept, "out"), Path(kept, "err")
            request = [[code, arguments, environment, str(folder or os.getcwd())], str(out), str(err)]
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
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


turns = itertools.cycle(range(2))


@functools.cache
def shared_server(prepare: str, number: int) -> ProgramServer:
    server = ProgramServer(prepare, {})
    atexit.register(server.close)
    return server


def run_in_turn(*program, prepare: str = READY, **options) -> subprocess.CompletedProcess[str]:
    try:
        number = next(turns) if prepare == TORCH else 0
        return shared_server(prepare, number).run(*program, **options)
    except subprocess.TimeoutExpired:
        shared_server.cache_clear()
        raise


def run_program(
    code: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    ends: tuple[int, ...] = (0,),
    prepare: str = READY,
) -> subprocess.CompletedProcess[str]:
    """As `python -c CODE ARGUMENTS` does, but that `prepare` is done before. What torch or Python read from the
    environment as they start is that of the tests."""
    done = run_in_turn(
        code, *arguments, environment={**(os.environ if environment is None else environment)}, prepare=prepare
    )
    assert done.returncode in ends, done.stdout + done.stderr
    return done


FILE = """
import sys
__file__ = sys.argv.pop(1)
sys.argv[0], sys.path[0] = __file__, __file__.rpartition("/")[0] or "."
with open(__file__, "rb") as file:
    code = compile(file.read(), __file__, "exec")
exec(code)
"""
MODULE = """
import importlib.util, sys
__spec__ = importlib.util.find_spec(sys.argv.pop(1))
__package__, __file__ = __spec__.parent, __spec__.origin
sys.argv[0] = __file__
exec(__spec__.loader.get_code(__spec__.name))
"""


def run_command(
    command, env=None, cwd=None, stderr=None, text=False, timeout=300, check=False, server=None, prepare=READY, **_
):
    """In the place of `subprocess.run`, where the command starts Python with a file, `-m MODULE` or `-c CODE`."""
    python, *rest = map(str, command)
    assert python == sys.executable
    program = [MODULE, *rest[1:]] if rest[0] == "-m" else rest[1:] if rest[0] == "-c" else [FILE, *rest]
    run = functools.partial(run_in_turn, prepare=prepare) if server is None else server.run
    made = run(*program, environment={**(env or os.environ)}, folder=cwd, timeout=timeout)
    out, err = (made.stdout + made.stderr, None) if stderr == subprocess.STDOUT else (made.stdout, made.stderr)
    if not text:
        out, err = out.encode(), err and err.encode()
    done = subprocess.CompletedProcess(command, made.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def next_program(prepare: str) -> list | None:
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


def end_without_freeing() -> None:
    """As Python ends a program, but that objects are not freed one by one, which takes longer than a small program."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -c` has it
    prepare = sys.argv[1]
    program = next_program(prepare)
    if program is not None:
        code, arguments, environment, folder = program
        os.chdir(folder)
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
            entries = environment.get("PYTHONPATH", "").split(os.pathsep)
            sys.path[1:1] = [entry for entry in entries if entry and entry not in sys.path]
        sys.argv = ["-c", *arguments]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
        if prepare == READY:
            end_without_freeing()
