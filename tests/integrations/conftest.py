"""The files `with_….py` here run together in one process of their own.

Frameworks change torch for the whole process as they are imported (Lightning replaces torch.compile, and all of them
load Dynamo), which is not to reach the other tests. So these files are not imported to find their tests: the names are
read from the text, and one process runs all that were asked for.

    pytest tests/integrations                                          in a process of their own
    pytest tests/integrations/with_accelerate.py -k prepare            in this one, as any test file

`--dist loadfile` gives a worker the tests whose names are the same up to the first `::`. All of these begin with
TOGETHER, as if they were in one file: a second worker would start the same process for its part of them.
"""

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

LONGEST = 1800  # seconds
TOGETHER = "tests/integrations/with_frameworks"


def pytest_collect_file(file_path, parent):
    if (
        file_path.parent == Path(__file__).parent
        and file_path.match("with_*.py")
        and not parent.session.isinitpath(file_path)
    ):
        return InAnotherProcess.from_parent(parent, path=file_path, nodeid=TOGETHER)


class InAnotherProcess(pytest.File):
    def collect(self):
        for node in ast.parse(self.path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                test = Test.from_parent(self, name=f"{self.path.stem}::{node.name}")
                if any(ast.unparse(decorator).startswith("pytest.mark.slow") for decorator in node.decorator_list):
                    test.add_marker(pytest.mark.slow)
                yield test


class Test(pytest.Item):
    __test__ = False

    def runtest(self):
        found, said = outcomes(self.session)
        if self.name not in found:
            pytest.fail(f"{self.name} did not run:\n{said[-4000:]}", pytrace=False)
        kind, text = found[self.name]
        if kind == "skipped":
            pytest.skip(text)
        if kind != "passed":
            pytest.fail(text, pytrace=False)

    def reportinfo(self):
        return self.path, 0, self.name


def outcomes(session):
    """Of every such test in the session, and all that was printed: the process is started for the first that asks."""
    if not hasattr(session, "found_elsewhere"):
        tests = [f"{item.path}::{item.name.partition('::')[2]}" for item in session.items if isinstance(item, Test)]
        session.found_elsewhere = run(tests, session.config)
    return session.found_elsewhere


def run(tests, config):
    report = Path(os.environ.get("TMPDIR", "/tmp")) / f"burnish-integrations-{os.getpid()}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={config.rootpath}",
        f"--junitxml={report}",
        "-m",
        config.option.markexpr,
        *tests,
    ]
    try:
        done = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True, timeout=LONGEST)
        found = {}
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            test = f"{case.get('classname').rpartition('.')[2]}::{case.get('name').partition('[')[0]}"
            trouble = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
            # One failure among the parameters of a test is a failure of the test.
            if found.get(test, ("passed",))[0] in ("passed", "skipped"):
                found[test] = (
                    ("passed", "") if trouble is None else (trouble.tag, trouble.text or trouble.get("message"))
                )
        return found, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return {}, f"the process took more than {LONGEST} seconds\n{late.stdout or b''}"
    finally:
        report.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def uninstalled():
    yield
    import burnish

    burnish.uninstall()
