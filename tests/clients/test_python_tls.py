"""The Python client over TLS, with a token that has a name."""

import asyncio
import os
import subprocess
import sys

import pytest

import support
from support import BUILD, expect
from support.certificates import Authority
from support.service import Service

sys.path.insert(0, os.path.join(support.ROOT, "clients/python/src"))
pytest.importorskip("redis", reason="python3-redis is missing")
import weir as client  # noqa: E402


def test_the_service_over_tls():
    with Authority() as ca, Authority() as other:
        certificate, key = ca.issue("server")
        with Service("--certificate", certificate, "--certificate-key", key, "--require-token", "yes") as s:
            words = [os.path.join(BUILD, "weir"), "token", "add", "shop", "--role", "ask", "--data", s.data]
            token = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            support.until(lambda: s.events("tokens"), "the token is valid")
            for user in ("", "shop"):
                for deadline in (30, 60):
                    with client.Weir.connect(f"rediss://{user}:{token}@localhost:{s.resp[1]}?ssl_ca_certs={ca.path}", deadline=deadline) as weir:
                        expect(weir.check(event="ocr", key=f"{user} {deadline}").rule, "ocr")
                        expect(asyncio.run(weir.acheck(event="ocr", key=f"{user} {deadline}")).rule, "ocr")
            # Whoever answers without the right certificate gets no token, and decides nothing.
            with client.Weir.connect(f"rediss://:{token}@localhost:{s.resp[1]}?ssl_ca_certs={other.path}", deadline=5) as weir:
                expect(weir.check(event="ocr", key="k").unavailable, True)


def test_client_certificates():
    with Authority() as ca:
        (certificate, key), (own, own_key) = ca.issue("server"), ca.issue("client")
        with Service("--certificate", certificate, "--certificate-key", key, "--resp-tls", "clients", "--client-authorities", ca.path) as s:
            url = f"rediss://localhost:{s.resp[1]}?ssl_ca_certs={ca.path}"
            with client.Weir.connect(f"{url}&ssl_certfile={own}&ssl_keyfile={own_key}", deadline=30) as weir:
                expect(weir.check(event="ocr", key="k").rule, "ocr")
                expect(asyncio.run(weir.acheck(event="ocr", key="k")).rule, "ocr")
            with client.Weir.connect(url, deadline=5) as weir:
                expect(weir.check(event="ocr", key="k").unavailable, True)
