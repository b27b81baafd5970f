"""Many services on one store, each with a folder of its own, as on hosts of their own; and many clients, that note what they
were told."""

import collections
import contextlib
import http.client
import itertools
import json
import re
import sys
import threading
import time

from support import DEADLINE_S, expect, until
from support.service import Service
from support.wire import Gone, Wire, words

DENIED_RETRY_MS = 1000  # a refusal for want of the store says so; the windows of these tests last for a year
PIPELINE = 8
EVENTS = {"does not answer": "down", ") answers": "up", " answers (": "up", "is now another server": "replaced",
          "has taken the place of": "replaced", "has lost its data": "emptied"}
COUNTS = ("late", "failed", "lost", "unsent", "refunded", "breaker_opened", "replaced", "emptied", "reconciled_tokens")
STARTS = 3
LEASES = ("lease_slices", "lease_tokens_lent", "lease_tokens_returned")


class Node(Service):
    """A service that counts in a store. It may be killed and started again."""

    def __init__(self, store, rules, *flags):
        address = store if isinstance(store, str) else store.address
        super().__init__("--counters", address, "--threads", 2, *flags, rules=rules)
        self.http = self.resp = None

    def __enter__(self):
        super().__enter__()
        try:
            # A machine that stood still meanwhile has made an outage of its own, and they are counted: once more, then.
            for _ in range(STARTS):
                if until(lambda: "up" in (told := self.told()[0]) and told, "the store is reached") == ["up"]:
                    break
                print("# began with an outage, and is started again", flush=True)
                self.restart()
            else:
                raise AssertionError(f"always begins with an outage: {self.told()[1]}")
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        self.begun = len("".join(self.lines()).encode())
        super().start()

    def kill(self):
        """Nobody is sent to a port that may be somebody else's soon."""
        self.http = self.resp = None
        super().kill()

    def status(self):
        return self.steer("GET", "/v1/status").json()["store"]

    def is_up(self):
        return self.status()["up"]

    def metrics(self):
        text = self.steer("GET", "/metrics").body.decode()
        return {name: float(value) for name, value in re.findall(r"^(weir_(?:store|lease)_\w+) (\S+)$", text, re.M)}

    def anon_kb(self):
        """Its memory, without the files that it has mapped."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"^RssAnon:\s+(\d+) kB", file.read(), re.M)[1])

    def told(self):
        """What the log says of the store since the start, in its order, and in its words."""
        kinds, words_said = [], [entry["message"] for entry in self.events("store", self.begun)]
        for said in words_said:
            kinds += [kind for text, kind in EVENTS.items() if text in said]
        expect(len(kinds), len(words_said), f"{words_said}")
        return kinds, "\n".join(words_said)


def agree(node, **wanted):
    """So often it was told that the store is up, down, replaced, emptied, if that is given; log, status and metrics say the
    same. To be called when nothing goes on."""
    status, metrics, (told, words_said) = node.status(), node.metrics(), node.told()
    expect(dict(collections.Counter(told)), wanted or dict(collections.Counter(told)), words_said)
    changes = [kind for kind in told if kind in ("down", "up")]
    expect([pair for pair in zip(changes, changes[1:]) if pair[0] == pair[1]], [], f"each change once: {words_said}")
    expect(changes[-1] == "up", status["up"], f"up: {words_said}")
    counted = (status["breaker_opened"], status["replaced"], status["emptied"])
    expect(counted, tuple(told.count(kind) for kind in ("down", "replaced", "emptied")), words_said)
    expect({name: metrics[f"weir_store_{name}_total"] for name in COUNTS}, {name: status[name] for name in COUNTS})
    expect({name: metrics[f"weir_{name}_total"] for name in LEASES}, {name: status[name] for name in LEASES})
    expect((metrics["weir_store_up"], metrics["weir_lease_tokens_held"]), (status["up"], status["lease_tokens_held"]))


# ---- clients ----


def kind_of(allowed, retry_after_ms):
    return "allowed" if allowed else "denied" if retry_after_ms == DENIED_RETRY_MS else "refused"


def check(subject):
    return words("WEIR.CHECK", "event", subject[0], "key", subject[1])


def ask(node, subject, command="WEIR.CHECK"):
    """What one is told, and what remains."""
    with Wire(node) as wire:
        reply = wire.ask(command, "event", subject[0], "key", subject[1])
        return kind_of(reply[0], reply[6]), reply[4]


def spend(node, subject, most=None):
    """How many pass until one is refused. Who is denied asks again."""
    passed = 0
    with Wire(node) as wire:
        while most is None or passed < most:
            reply = wire.ask("WEIR.CHECK", "event", subject[0], "key", subject[1])
            kind = kind_of(reply[0], reply[6])
            if kind == "refused":
                break
            passed += kind == "allowed"
    return passed


class Crowd:
    """Tens of connections: commands one by one, in pipelines, and over HTTP. Each asks for all subjects in turn; a greedy one
    to the end of the `with`, others until they have been refused for each. Where a node has gone a client comes back to it."""

    def __init__(self, nodes, subjects, connections=12, greedy=False, rest_s=0.0):
        self.subjects = list(subjects)
        self.greedy = greedy
        self.rest_s = rest_s
        self.lock = threading.Lock()
        self.found = {subject: collections.Counter() for subject in self.subjects}
        self.first = {}  # when a subject was first refused: how many could have passed by then
        self.took = []  # (when asked, seconds)
        self.failed = []
        self.stopping = threading.Event()
        ways = itertools.cycle((self.single, self.pipeline, self.single, self.over_http))
        work = [(next(ways), node, number) for node in nodes for number in range(connections)]
        self.threads = [threading.Thread(target=self.run, args=args) for args in work]
        self.turns = dict.fromkeys(self.threads, 0)  # questions, or pipelines of them, that were answered

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *why):
        if self.greedy or kind is not None:
            self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.failed and kind is None:
            raise self.failed[0]

    # ---- what became of it ----

    def count(self, kind, *subjects):
        with self.lock:
            return sum(self.found[subject][kind] for subject in subjects or self.subjects)

    def allowed(self, *subjects):
        return self.count("allowed", *subjects)

    def unanswered(self, *subjects):
        """Also while it goes on."""
        answered = sum(self.count(kind, *subjects) for kind in ("allowed", "refused", "denied"))
        return self.count("sent", *subjects) - answered

    def slowest(self, begin, end):
        """Of what was asked between: the median and the longest."""
        took = sorted(seconds for when, seconds in self.took if begin <= when <= end)
        return took[len(took) // 2], took[-1]

    def takes_turns(self):
        """Until each client has noted all answers to what it had asked by now, or has ended."""
        before = dict(self.turns)

        def has_turned(thread):
            return self.turns[thread] >= before[thread] + 2 or not thread.is_alive()

        until(lambda: all(map(has_turned, self.threads)), "each client is answered")

    # ---- one of them ----

    def note(self, subject, kind, since=None):
        with self.lock:
            found = self.found[subject]
            found[kind] += 1
            if since is not None:
                self.took.append((since, time.monotonic() - since))
            if kind == "refused" and subject not in self.first:
                self.first[subject] = found["sent"] - found["refused"] - found["denied"]

    def run(self, way, node, number):
        try:
            # Not all begin with the same one.
            wanted = collections.deque(self.subjects)
            wanted.rotate(number)
            while wanted and not self.stopping.is_set():
                try:
                    way(node, wanted)
                except (Gone, OSError, http.client.HTTPException):
                    time.sleep(0.01)
        except BaseException as why:  # told by whoever waits
            self.failed.append(why)

    def heard(self, subject, kind, since, wanted):
        self.note(subject, kind, since)
        if kind == "refused" and not self.greedy and subject in wanted:
            wanted.remove(subject)

    def rest(self):
        self.turns[threading.current_thread()] += 1
        time.sleep(self.rest_s)

    def over_wire(self, node, wanted, depth):
        if node.resp is None:
            raise Gone
        with Wire(node) as wire:
            while wanted and not self.stopping.is_set():
                asked = [wanted[i % len(wanted)] for i in range(depth)]
                wanted.rotate(-1)
                since = time.monotonic()
                for subject in asked:
                    self.note(subject, "sent")
                wire.send(b"".join(map(check, asked)))
                for subject in asked:
                    reply = wire.reply()
                    self.heard(subject, kind_of(reply[0], reply[6]), since, wanted)
                self.rest()

    def single(self, node, wanted):
        self.over_wire(node, wanted, 1)

    def pipeline(self, node, wanted):
        self.over_wire(node, wanted, PIPELINE)

    def over_http(self, node, wanted):
        if node.http is None:
            raise Gone
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE_S)
        connection.auto_open = 0
        connection.sock = node.socket(node.http)
        with contextlib.closing(connection):
            while wanted and not self.stopping.is_set():
                subject = wanted[0]
                wanted.rotate(-1)
                since = time.monotonic()
                self.note(subject, "sent")
                body = json.dumps({"event": subject[0], "key": subject[1]})
                connection.request("POST", "/v1/check", body, {"Content-Type": "application/json"})
                verdict = json.loads(connection.getresponse().read())
                self.heard(subject, kind_of(verdict["allowed"], verdict["retry_after_ms"]), since, wanted)
                self.rest()


# ---- what the store knows ----

READ = """
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local _, _, count = struct.unpack('<ddd', value)
return count
"""


def charged(store, subject, field):
    """The count of a window; the rule has the name of the event."""
    return store.ask("EVAL", READ, 1, f"weir:1:{{{subject[1]}}}:{subject[0]}:key", field)


def total(nodes, name):
    return sum(node.status()[name] for node in nodes)
