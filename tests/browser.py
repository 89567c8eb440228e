"""A browser for tests of pages: Chromium, the system's or Playwright's own, driven by Playwright.

`pip install playwright` does not bring a browser: Debian's `chromium`, Google Chrome and `playwright install chromium`
do.
"""

import contextlib
import functools
import importlib.util
import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def chromium() -> str | None:
    """The path of a browser."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and importlib.util.find_spec("playwright") is not None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            own = playwright.chromium.executable_path
        found = own if os.path.exists(own) else None
    return found


@functools.cache
def why_no_browser() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "needs Playwright: pip install playwright"
    if chromium() is None:
        return "needs Chromium: apt-get install chromium, or playwright install chromium"
    return None


needs_browser = pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser()))


@contextlib.contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without the last one, Chromium looks up hosts of its own at each start.
        found = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-background-networking"]
        )
        yield found
        found.close()
