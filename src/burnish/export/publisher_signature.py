"""Signatures of publishers: an ed25519 key shows who wrote a file, so that others may let its machine code run.

    burnish keygen release.key                                   writes release.key and release.key.pub
    burnish.save(model, "model.burnish", (x,), sign="release.key")
    burnish.load("model.burnish", trust="release.key.pub")

A signature covers every entry of the archive, its memory too. Keys are PEM files, as `openssl genpkey -algorithm
ed25519` writes them. The signature holds the public key only to name it: what counts is whether the reader has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PathLike = str | os.PathLike[str]
Keys = PathLike | Sequence[PathLike]

PURPOSE = b"burnish file, version 1\0"
KEY_BYTES = 32


def write_keys(path: PathLike) -> tuple[Path, Path]:
    """A new private key, which only its owner can read, and beside it the public one. Nothing is overwritten."""
    crypto = cryptography()
    private, public = Path(path), Path(f"{os.fspath(path)}.pub")
    for file in (private, public):
        if os.path.lexists(file):
            raise UserError(f"{file} is there already, and a key that is overwritten is lost. Choose another name.")
    key = crypto.ed25519.Ed25519PrivateKey.generate()
    pem, plain = crypto.serialization.Encoding.PEM, crypto.serialization.NoEncryption()
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(pem, crypto.serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(pem, crypto.serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def keys_in(trust: Any) -> Sequence[PathLike] | None:
    """The public keys that an argument names; None if it only says yes or no."""
    if isinstance(trust, str | os.PathLike):
        return [trust]
    if not isinstance(trust, list | tuple | bytes):
        return None
    wrong = next((key for key in trust if not isinstance(key, str | os.PathLike)), None)
    if isinstance(trust, bytes) or wrong is not None or not trust:
        raise UserError(f"trust={trust!r:.80}: give True, False, or the file of a public key, or a list of such files.")
    return trust


def sign(key: PathLike, digests: Mapping[str, bytes]) -> bytes:
    """The public key, and a signature of these SHA-256 digests of an archive's entries."""
    private = read_private(key)
    return private.public_key().public_bytes_raw() + private.sign(message(digests))


def read_private(key: PathLike) -> Ed25519PrivateKey:
    found: Ed25519PrivateKey = _read(key, "private")
    return found


def is_signed_with(keys: Sequence[PathLike], signature: bytes, digests: Mapping[str, bytes]) -> bool:
    """Whether one of the public keys made the signature."""
    from cryptography.exceptions import InvalidSignature

    claimed, made = signature[:KEY_BYTES], signature[KEY_BYTES:]
    for path in keys:
        public: Ed25519PublicKey = _read(path, "public")
        if public.public_bytes_raw() == claimed:
            try:
                public.verify(made, message(digests))
            except InvalidSignature:
                return False
            return True
    return False


def message(digests: Mapping[str, bytes]) -> bytes:
    listed = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        listed.update(f"{len(name)} {name} ".encode() + digest)
    return PURPOSE + listed.digest()


def fingerprint(signature: bytes) -> str:
    """The key that a signature claims, short enough to compare by eye."""
    return hashlib.sha256(signature[:KEY_BYTES]).hexdigest()[:16]


def _read(path: PathLike, kind: str) -> Any:
    crypto = cryptography()
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"The {kind} key {os.fspath(path)} cannot be read: {error.strerror}.") from error
    try:
        if kind == "private":
            key = crypto.serialization.load_pem_private_key(text, password=None)
        else:
            key = crypto.serialization.load_pem_public_key(text)
    except Exception as error:
        raise UserError(f"{os.fspath(path)} is not a {kind} key in the PEM format: {error}.") from error
    wanted = crypto.ed25519.Ed25519PrivateKey if kind == "private" else crypto.ed25519.Ed25519PublicKey
    if not isinstance(key, wanted):
        raise UserError(f"{os.fspath(path)} is a {kind} key, but none of ed25519. `burnish keygen FILE` makes one.")
    return key


def cryptography() -> Any:
    """The library, which is not installed with Burnish: an object with two of its modules."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UserError("Signatures of files need the package cryptography: pip install 'burnish[sign]'.") from error
    return SimpleNamespace(serialization=serialization, ed25519=ed25519)
