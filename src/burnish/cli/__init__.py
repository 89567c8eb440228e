"""The command `burnish` and its subcommands."""
