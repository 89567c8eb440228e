"""The compile tests of projects that use torch.compile, run by eager, by torch.compile and by Burnish.

    python -m bench.clients --cache DIR tensordict kornia

`projects` is the table of clients, `environments` installs one, `plugin/burnish_client.py` runs inside its pytest,
`outcomes` compares the three ways.
"""
