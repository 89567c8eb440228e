"""Attacks: generators of programs that try to make compiled code differ from eager."""
