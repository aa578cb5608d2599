"""Certificates for servers on loopback, made by `openssl` where a test needs one."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def server_context(folder: Path, name: str = "127.0.0.1") -> tuple[ssl.SSLContext, Path]:
    """A TLS context of a server with a certificate that it signed itself, and the file to trust it by."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    kind = "IP" if name.replace(".", "").isdigit() else "DNS"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=test", "-addext", f"subjectAltName={kind}:{name}"]
    subprocess.run(
        ["openssl", "req", "-x509", *options, *subject, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
