"""`pytest tests/golden --update-golden` writes the stages' current output into the files."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")
