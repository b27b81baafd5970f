"""The cases of varnishtest, *.vtc in this folder: its client against nginx with weir. Each file is one case."""

import os
import subprocess

import pytest

from support import DEADLINE_S, expect
from support.gateway import ZONE, Gateway

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = sorted(name for name in os.listdir(HERE) if name.endswith(".vtc"))
RULES = """
rules:
  - { id: answer, match: { path: /answer }, limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ] }
  - { id: variables, match: { path: /variables }, limits: [ { name: hour, algorithm: fixed_window, max: 3, per: 1h } ] }
  - { id: never, match: { path: [ /never, "/page/*" ] }, limits: [ { name: nothing, max: 0, per: 1h } ] }
"""
HTTP = ZONE + """
map $weir_remaining $pace { 0 "slow down"; 1 "slow down"; default "be quick"; }
map $weir_verdict $advice { allowed "$weir_remaining left, $pace"; refused "wait $weir_retry_after s"; default ""; }
"""
SERVER = """
weir main;
weir_headers always;
location / {
    add_header X-Advice $advice always;
    add_header X-Seen $weir_verdict always;
    proxy_pass http://@BACKEND@;
}
location /page { error_page 429 @refused; proxy_pass http://@BACKEND@; }
location /page/as/200 { error_page 429 =200 @refused; proxy_pass http://@BACKEND@; }
location @refused { default_type text/plain; return 429 "refused by $weir_rule"; }
"""

g = Gateway(http=HTTP, server=SERVER, rules=RULES)


@pytest.mark.parametrize("name", FILES)
def test_vtc(name):
    path = os.path.join(HERE, name)
    words = ["varnishtest", "-t", str(DEADLINE_S), "-D", f"address=127.0.0.1:{g.port}", "-D", f"h2=127.0.0.1:{g.h2_port}", path]
    done = subprocess.run(words, env={**os.environ, "TMPDIR": g.folder}, capture_output=True, text=True, check=False)
    expect(done.returncode, 0, "\n".join((done.stdout + done.stderr).splitlines()[-40:]))
