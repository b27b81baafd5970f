"""Certificates for tests, made by the command openssl when they run."""

import os
import subprocess
import tempfile


class Authority:
    """with Authority() as ca: ca.issue("server", "DNS:localhost,IP:127.0.0.1") returns the paths of a certificate and its key; ca.path is
    the authority's own certificate."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path, self.key = self.at("ca.pem"), self.at("ca.key")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", self.path,
                     "-days", "10", "-subj", "/CN=authority of a test")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def at(self, name):
        return os.path.join(self.folder.name, name)

    @staticmethod
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def issue(self, name, names="DNS:localhost,IP:127.0.0.1", days=5):
        """names: whom it is for; days: negative if it has expired."""
        path, key, request, extensions = (self.at(f"{name}.{end}") for end in ("pem", "key", "csr", "ext"))
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={names}\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        self.openssl("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self.key, "-CAcreateserial", "-days", str(days),
                     "-extfile", extensions, "-out", path)
        return path, key
