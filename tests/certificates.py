"""Certificates for this machine, made on the spot by the openssl program."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"
_KEY = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Certificate:
    """That of a server that has signed it itself; all files are PEM."""

    certificate: Path
    key: Path
    another_key: Path
    locked_key: Path
    """The key, with a passphrase."""


def make_certificate(folder: Path) -> Certificate:
    """A new one, for `localhost` and 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program")
    made = Certificate(*(folder / f"{name}.pem" for name in ("certificate", "key", "another", "locked")))
    subject = ("-subj", "/CN=localhost", "-addext", _NAMES, "-days", "2")
    _openssl("req", "-x509", "-newkey", *_KEY, "-nodes", "-keyout", made.key, "-out", made.certificate, *subject)
    _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", made.another_key)
    _openssl("ec", "-in", made.key, "-aes128", "-passout", "pass:word", "-out", made.locked_key)
    return made


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
