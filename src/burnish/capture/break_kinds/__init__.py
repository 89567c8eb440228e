"""The catalog: every reason for which a graph ends, each with its cure.

A record is what a user is told, so it must be true and must help. ``why`` explains the reason to someone who does not
know how capture works, ``what_to_do`` names the way out, ``broken`` and ``fixed`` show it. Both examples are whole
programs: they define ``fn``, the function a user would compile, and what follows its definition runs it.

Codes never change their meaning. B1xx data, B2xx calls, B3xx language, B4xx state, B5xx limits: a module each.
"""
