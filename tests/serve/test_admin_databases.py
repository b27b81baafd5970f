"""The admin API over MariaDB and PostgreSQL: as long as they answer, and when they do not."""

import contextlib
import http.client
import select
import signal
import threading
import time

import pytest

from support import DEADLINE_S, databases, expect, until
from support.contract import Checked
from support.service import Answer

pytestmark = pytest.mark.parametrize("db", ["mysql", "postgres"], indirect=True)

RULE = {"match": {"event": "e"}, "by": ["key"], "limits": [{"algorithm": "fixed_window", "max": 1, "per": "1h"}]}


def rule(most):
    return {**RULE, "limits": [{**RULE["limits"][0], "max": most}]}


def service(db, *flags):
    databases.done(db, "init")
    return Checked("--rules", db.address, *flags, rules=False)


def put(s, most, *statuses):
    answer = s.steer("PUT", "/v1/rules/e", rule(most))
    if answer.status not in (statuses or (200, 201)):
        raise AssertionError(f"{answer.status}: {answer.body}")
    return answer


def most(s):
    return s.check(event="e", key="k", cost=0).json()["max"]


def lives(s, wanted):
    """Whatever the database does, decisions go on with the last good rules, and the service says how it is."""
    expect(most(s), wanted)
    expect(s.ask(s.admin, "GET", "/healthz").status, 200)
    expect(s.ask(s.admin, "GET", "/readyz").status, 200)
    return s.steer("GET", "/v1/status").json()


def secret(db):
    return db.password.encode()


def test_rules_are_changed(db):
    with service(db, "--poll", "1h") as s:
        for number in (1, 3, 2):
            put(s, number)
            expect(most(s), number)
        events = s.steer("GET", "/v1/rules/e/history").json()["events"]
        expect([event["what"] for event in events], ["change", "change", "add"])
        expect(s.steer("POST", "/v1/rules/e/undo").status, 200)
        expect(most(s), 3)
        tag = s.steer("GET", "/v1/rules/e").headers["ETag"]
        put(s, 4)
        expect(s.steer("PUT", "/v1/rules/e", rule(5), {"If-Match": tag}).status, 412)
        expect(s.steer("PUT", "/v1/settings", {"ipv6_prefix": 48}).json(), {"ipv6_prefix": 48})
        expect(s.steer("DELETE", "/v1/rules/e").status, 204)
        expect(most(s), None)
        listed = s.steer("GET", "/v1/rules")
        expect((listed.json()["rules"], secret(db) in listed.body), ([], False))


def test_resets_are_recorded(db):
    with service(db, "--poll", "1h") as s:
        put(s, 1)
        s.check(event="e", key="k")
        expect(s.steer("DELETE", "/v1/subjects?rule=e&by=k", None, {"X-Weir-Author": "Ann"}).status, 204)
        event = s.steer("GET", "/v1/rules/e/history").json()["events"][0]
        expect([event[name] for name in ("what", "who", "table", "row", "before", "undoable")], ["reset", "Ann", "subject", "k", None, False])
        expect(most(s), 1)
        expect(s.steer("POST", "/v1/undo").json()["text"], "rule e is removed")


def test_writers_of_two_services_lose_nothing(db):
    turns = 5

    def write(s, failures):
        try:
            done = 0
            while done < turns:
                row = s.steer("GET", "/v1/rules/e")
                wanted = rule(row.json()["rule"]["limits"][0]["max"] + 1)
                answer = s.steer("PUT", "/v1/rules/e", wanted, {"If-Match": row.headers["ETag"]})
                done += answer.status == 200
                if answer.status not in (200, 412):
                    raise AssertionError(answer.body)
        except BaseException as failure:
            failures.append(failure)
            raise

    with service(db) as one, service(db) as two:
        put(one, 0)
        failures = []
        threads = [threading.Thread(target=write, args=(s, failures)) for s in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(failures, [])
        expect(two.steer("GET", "/v1/rules/e").json()["rule"]["limits"][0]["max"], 2 * turns)


def test_a_server_that_was_killed(db):
    with service(db, "--poll", "100ms") as s:
        put(s, 2)
        db.tell("kill")
        try:
            answer = put(s, 9, 503)
            expect(secret(db) in answer.body, False, "the password is in the answer")
            expect(answer.headers["Retry-After"], "5")
            expect(s.steer("GET", "/v1/rules").status, 503)
            until(lambda: not lives(s, 2)["source"]["reachable"], "the outage is in the status")
            # A start in the meantime goes on with the last good rules.
            s.restart()
            expect(lives(s, 2)["source"]["from_copy"], True)
        finally:
            db.tell("start")
        until(lambda: s.steer("PUT", "/v1/rules/e", rule(3)).status == 200, "the server is back")
        status = lives(s, 3)
        expect((status["source"]["reachable"], status["source"]["from_copy"]), (True, False))
        expect([secret(db) in line.encode() for line in s.lines()].count(True), 0, "the password is in the log")


def asked_at_once(s, count, meanwhile):
    """How so many requests are answered that the service finds all waiting: none has been there for longer than the others."""
    with contextlib.ExitStack() as stack:
        s.process.send_signal(signal.SIGSTOP)
        try:
            connections = []
            for _ in range(count):
                connections.append(stack.enter_context(contextlib.closing(http.client.HTTPConnection("localhost"))))
                connections[-1].sock = s.socket(s.admin)
                connections[-1].request("GET", "/v1/rules", headers={"Authorization": f"Bearer {s.token}"})
        finally:
            s.process.send_signal(signal.SIGCONT)
        sockets = [connection.sock for connection in connections]
        end = time.monotonic() + DEADLINE_S
        while (answered := len(select.select(sockets, [], [], 0)[0])) < count:
            meanwhile()
            expect(time.monotonic() < end, True, f"{answered} of {count} were answered")
        answers = [Answer(connection.getresponse()) for connection in connections]
    for answer in answers:
        Checked.document.check("GET", "/v1/rules", None, answer)
    return [answer.status for answer in answers]


def test_a_server_that_hangs(db):
    with service(db, "--request", "2s") as s:
        put(s, 2)
        db.tell("freeze")
        try:
            # 64 wait, and one may be worked on; the others are turned away.
            statuses = asked_at_once(s, 70, lambda: lives(s, 2))
            expect((set(statuses), statuses.count(503) in (5, 6)), ({503, 504}, True), statuses)
            answer = put(s, 3, 503, 504)
            expect(secret(db) in answer.body, False, "the password is in the answer")
        finally:
            db.tell("thaw")
        until(lambda: s.steer("PUT", "/v1/rules/e", rule(4)).status == 200, "the server is back")
        lives(s, 4)


def test_the_end_comes_although_a_server_hangs(db):
    if db.kind != "postgres":
        return
    with service(db, "--request", "2s", "--drain", "1s") as s:
        put(s, 2)
        db.tell("freeze")
        try:
            thread = threading.Thread(target=lambda: s.steer("GET", "/v1/rules"))
            thread.start()
            thread.join()
            s.stop()
        finally:
            db.tell("thaw")
