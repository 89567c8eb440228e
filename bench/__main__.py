"""`python -m bench`, in a checkout, is `burnish bench`."""

import sys

from burnish.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
