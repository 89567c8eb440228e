"""Burnish without what only POSIX systems have, in the place of a machine with Windows."""

from .forked_programs import TORCH, run_program

PROGRAM = """
import os, sys, torch

for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in (
    "fork", "forkpty", "getuid", "geteuid", "getgid", "register_at_fork", "sched_getaffinity", "fchmod", "sysconf",
    "getpgid", "mkfifo", "pread", "statvfs", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "posix_fadvise",
):
    if hasattr(os, name):
        delattr(os, name)
import burnish

def fn(x):
    return (x.sin() + 1).sum()

x, model = torch.rand(100), torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
burnish.settings.configure(on_error="raise", cache=True, cache_dir=sys.argv[1])
for _ in range(4):
    torch.testing.assert_close(burnish.compile(fn)(x), fn(x))
    loss = burnish.compile(model)(torch.ones(4, 8)).sum()
    loss.backward()
"""


def test_compiling_and_the_cache_need_nothing_that_only_posix_has(tmp_path):
    for _ in range(2):
        found = run_program(PROGRAM, str(tmp_path), prepare=TORCH)
        assert not found.stderr.strip(), found.stderr
    assert any(path.is_file() for path in tmp_path.rglob("*"))
