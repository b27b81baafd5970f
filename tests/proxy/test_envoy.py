"""A real Envoy, whose rate limit filter asks a real weir."""

import pytest

from support import expect, has, until
from support.certificates import Authority
from support.envoy_proxy import BY_ADDRESS, Envoy, by_header, over_tls
from support.service import Service

USER = {"actions": [by_header("x-user", "user")]}
PATH = {"actions": [by_header(":path", "path")]}
EVERYONE = {"actions": [{"generic_key": {"descriptor_key": "all", "descriptor_value": "yes"}}]}


def rules(*texts):
    return "rules:\n" + "\n".join(texts)


def rule(name, keys, limit, more="", by=None):
    by = ", ".join(f'"descriptor:{key}"' for key in (keys.split(",") if by is None else by))
    return f"""
  - id: {name}
    match: {{ domain: shop, descriptor_keys: "{keys}"{more} }}
    by: [{by}]
    limits: [{limit}]
"""


@pytest.fixture
def weir():
    """A service with these rules, and what else is asked of it."""
    running = []

    def start(text, *flags):
        service = Service("--grpc", "127.0.0.1:0", *flags, rules=text).__enter__()
        running.append(service)
        return service

    yield start
    for service in running:
        service.__exit__(None)


def test_by_header_address_and_path(weir):
    service = weir(
        rules(
            rule("users", "user", "{ max: 2, calendar: 1d }"),
            rule("slow", "path", "{ max: 1, calendar: 1d }", more=", descriptor: { path: /slow }"),
            rule("addresses", "remote_address", "{ max: 5, calendar: 1d }"),
        )
    )
    with Envoy(service.grpc, [("/", [USER, PATH, {"actions": [BY_ADDRESS]}])]) as envoy:
        ann = {"x-user": "ann"}
        expect([envoy.status("/a", ann) for _ in range(3)], [200, 200, 429])
        expect([envoy.status("/a", {"x-user": "bob"}) for _ in range(2)], [200, 200])
        expect(envoy.status("/slow"), 200, "the fifth of this address")
        expect(envoy.status("/a"), 429, "the sixth of this address: the refused one was not charged")
        expect(len(envoy.backend.paths()), 5)


def test_all_or_nothing(weir):
    """What one descriptor refuses charges no other."""
    service = weir(rules(rule("users", "user", "{ max: 1, calendar: 1d }"), rule("all", "all", "{ max: 3, calendar: 1d }")))
    with Envoy(service.grpc, [("/", [USER, EVERYONE])]) as envoy:
        expect([envoy.status("/", {"x-user": "ann"}) for _ in range(5)], [200, 429, 429, 429, 429])
        expect([envoy.status("/", {"x-user": name}) for name in ("bob", "cat", "dan")], [200, 200, 429])


def test_each_is_charged_where_it_is_asked_for(weir):
    """As envoyproxy/ratelimit does."""
    text = rules(rule("users", "user", "{ max: 1, calendar: 1d }"), rule("all", "all", "{ max: 3, calendar: 1d }"))
    service = weir(text, "--envoy-charge", "each")
    with Envoy(service.grpc, [("/", [USER, EVERYONE])]) as envoy:
        expect([envoy.status("/", {"x-user": "ann"}) for _ in range(3)], [200, 429, 429])
        expect(envoy.status("/", {"x-user": "bob"}), 429, "the three of ann were charged to all")


def test_an_empty_header_is_a_subject(weir):
    service = weir(rules(rule("users", "user", "{ max: 2, calendar: 1d }")))
    with Envoy(service.grpc, [("/", [USER])]) as envoy:
        expect([envoy.status("/", {"x-user": ""}) for _ in range(3)], [200, 200, 429])
        expect(envoy.status("/", {"x-user": "ann"}), 200)
        expect([envoy.status("/") for _ in range(4)], [200] * 4, "without the header there is no descriptor")


def test_any_bytes_are_a_subject(weir):
    """A value that is not a text must not make the call fail: Envoy would let the request pass."""
    service = weir(rules(rule("users", "user", "{ max: 2, calendar: 1d }"), rule("all", "all", "{ max: 4, calendar: 1d }")))
    with Envoy(service.grpc, [("/", [USER, EVERYONE])]) as envoy:
        expect([envoy.status("/", {"x-user": b"\xff\xfe"}) for _ in range(3)], [200, 200, 429])
        expect([envoy.status("/", {"x-user": b"\xc3"}) for _ in range(3)], [200, 200, 429])
        expect(envoy.status("/", {"x-user": b"\x80"}), 429, "all four are used")


def test_a_shadow_rule_refuses_nothing(weir):
    service = weir(rules(rule("users", "user", "{ max: 1, calendar: 1d }") + "    mode: shadow\n"))
    with Envoy(service.grpc, [("/", [USER])]) as envoy:
        expect([envoy.status("/", {"x-user": "ann"}) for _ in range(3)], [200] * 3)
        counts = service.steer("GET", "/metrics").body.decode()
        has(counts, 'weir_decisions_total{rule="users",outcome="shadow"} 2')


def test_headers_of_the_answer(weir):
    service = weir(rules(rule("users", "user", "{ max: 1, calendar: 1d }")), "--envoy-headers", "yes")
    settings = {"enable_x_ratelimit_headers": "DRAFT_VERSION_03"}
    with Envoy(service.grpc, [("/", [USER])], **settings) as envoy:
        first, second = (envoy.ask("/", {"x-user": "ann"}) for _ in range(2))
        expect((first.status, second.status), (200, 429))
        expect(first.headers["RateLimit-Limit"], "1")
        expect(first.headers["RateLimit-Remaining"], "0")
        expect(0 < int(second.headers["RateLimit-Reset"]) <= 86400, True)
        has(second.headers["x-ratelimit-limit"], "1, 1;w=86400")
        expect(second.headers["x-envoy-ratelimited"], "true")


def test_without_weir(weir):
    """The filter's setting decides: open, or closed."""
    text = rules(rule("users", "user", "{ max: 1, calendar: 1d }"))
    for closed, wanted in ((False, 200), (True, 500)):
        service = weir(text)
        with Envoy(service.grpc, [("/", [USER])], failure_mode_deny=closed) as envoy:
            expect([envoy.status("/", {"x-user": "ann"}) for _ in range(2)], [200, 429])
            service.stop()
            expect(envoy.status("/", {"x-user": "ann"}), wanted, f"failure_mode_deny: {closed}")


def test_a_restart_is_not_noticed(weir):
    """Counts survive, and Envoy connects again by itself."""
    service = weir(rules(rule("users", "user", "{ max: 3, calendar: 1d }")))
    with Envoy(service.grpc, [("/", [USER])], failure_mode_deny=True) as envoy:
        ann = {"x-user": "ann"}
        expect([envoy.status("/", ann) for _ in range(2)], [200, 200])
        place = "{}:{}".format(*service.grpc)
        service.flags[service.flags.index("--grpc") + 1] = place
        service.restart()
        until(lambda: envoy.status("/", {"x-user": "bob"}) != 500, "Envoy asks weir again", pause=0.1)
        expect([envoy.status("/", ann) for _ in range(2)], [200, 429])


def test_tokens_that_are_known_afterwards(weir):
    """As gateways for language models charge: the response says what it has cost, and an overdraft limit takes it."""
    service = weir(rules(rule("tokens", "user", "{ max: 100, calendar: 1d, overdraft: true }")))
    look = {**USER, "hits_addend": {"number": 0}}
    charge = {**USER, "hits_addend": {"format": "%RESP(x-tokens)%"}, "apply_on_stream_done": True}
    with Envoy(service.grpc, [("/", [look, charge])]) as envoy:
        envoy.backend.answers["/chat"] = (200, {"x-tokens": "70"}, b"hello")
        ann = {"x-user": "ann"}

        def used():
            return service.steer("GET", "/v1/explain?domain=shop&descriptor=user%3Dann").json()["rules"][0]["limits"][0]["used"]

        expect(envoy.status("/chat", ann), 200)
        until(lambda: used() == 70, "the first is charged", pause=0.05)
        expect(envoy.status("/chat", ann), 200, "30 are left")
        until(lambda: envoy.status("/chat", ann) == 429, "140 are used, and 100 are the most", pause=0.05)
        expect(envoy.status("/chat", {"x-user": "bob"}), 200)


def test_a_limit_that_envoy_sends(weir):
    service = weir(
        """
rules:
  - id: given
    match: { domain: shop, descriptor_limit: { present: true } }
    by: [descriptor]
    limits: given
"""
    )
    own = {"requests_per_unit": 2, "unit": "HOUR"}
    limit = {"dynamic_metadata": {"metadata_key": {"key": "limits", "path": [{"key": "own"}]}}}
    with Envoy(service.grpc, [("/own", [{**USER, "limit": limit}]), ("/", [USER])], metadata={"own": own}) as envoy:
        expect([envoy.status("/own", {"x-user": "ann"}) for _ in range(3)], [200, 200, 429])
        expect(envoy.status("/own", {"x-user": "bob"}), 200)
        expect([envoy.status("/", {"x-user": "ann"}) for _ in range(3)], [200] * 3, "nothing is sent, nothing is limited")


def test_over_tls(weir):
    """Both sides have a certificate. Without one of its own, Envoy reaches nobody, and is told to refuse then."""
    with Authority() as ca:
        (certificate, key), own = ca.issue("weir"), ca.issue("envoy")
        tls = ("--certificate", certificate, "--certificate-key", key, "--grpc-tls", "clients", "--client-authorities", ca.path)
        service = weir(rules(rule("users", "user", "{ max: 2, calendar: 1d }")), *tls)
        ann = {"x-user": "ann"}
        with Envoy(service.grpc, [("/", [USER])], tls=over_tls(ca.path, own), failure_mode_deny=True) as envoy:
            expect([envoy.status("/", ann) for _ in range(3)], [200, 200, 429])
        with Envoy(service.grpc, [("/", [USER])], tls=over_tls(ca.path, None), failure_mode_deny=True) as envoy:
            expect(envoy.status("/", {"x-user": "bob"}), 500)
