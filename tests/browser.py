"""A browser for tests of pages: Chromium by Playwright, where both are installed."""

import contextlib
import importlib.util
import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HAS_BROWSER = CHROMIUM is not None and importlib.util.find_spec("playwright") is not None
needs_browser = pytest.mark.skipif(not HAS_BROWSER, reason="needs Chromium and Playwright")


@contextlib.contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
