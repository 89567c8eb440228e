"""Foundation: what every other package may import, and users do not.

torch_private.py   every private name of torch that Burnish uses, and what happens without it
plugins.py         functions of installed packages, found by their entry points
"""
