"""A service and a browser for each file of tests of the page."""

import pytest

from support import expect
from support.service import Service

RULES = {
    "ocr": {"match": {"event": "ocr"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 3, "per": "1h"},
                                                                {"name": "day", "max": 100, "per": "day", "tz": "Asia/Shanghai"}]},
    "login": {"match": {"method": "POST", "path": "/login"}, "by": ["ip"], "limits": ["2 per 1h"], "penalty": {"after": 3, "within": "1m", "for": "5m"}},
    "careful": {"match": {"event": "ocr"}, "by": ["key"], "limits": ["1 per 1h"], "mode": "shadow"},
    "plans": {"match": {"event": "chat"}, "by": ["user"], "plan": "header:X-Plan", "plans": {"free": "10 per day", "pro": "1000 per day"}, "limits": "5 per day"},
    "budget": {"match": {"event": "ocr"}, "limits": [{"name": "month", "max": 5000, "per": "month", "tz": "Asia/Shanghai"}]},
}


@pytest.fixture(scope="module")
def served():
    """One service for the cases of this file; each has rules and subjects of its own."""
    with Service("--sample", "10000", "--sample-values", "plain", rules=None) as s:
        for name in ("entity-bundle", "per-address", "upload"):
            s.steer("DELETE", f"/v1/rules/{name}")
        for name, rule in RULES.items():
            answer = s.steer("PUT", f"/v1/rules/{name}", rule)
            expect(answer.status in (200, 201), True, answer.body)
        for i in range(40):
            s.check(event="ocr", key=f"u{i % 5}")
        yield s


@pytest.fixture(scope="module")
def window():
    from support.browser import Browser  # skips the test if there is no Selenium

    with Browser() as b:
        yield b


@pytest.fixture
def page(served, window):
    """Signed in as an administrator; nothing is left on the console at the end."""
    window.driver.delete_all_cookies()
    window.errors()
    window.sign_in(served)
    yield window
    expect([one for one in window.errors() if "status of 4" not in one], [], "the console")


@pytest.fixture
def blank(window):
    """The window, for a test that has a service of its own: nobody is signed in, and nothing asks that service after its end."""
    window.driver.delete_all_cookies()
    yield window
    window.driver.get("about:blank")
