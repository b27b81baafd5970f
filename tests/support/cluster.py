"""A real Redis Cluster of a test's own: nodes on free ports of loopback, each a Store, gone at the end."""

import contextlib

from support import expect, free_port, until
from support.store import SecureStore, Store
from support.wire import Error

SLOTS = 16384
NODE_TIMEOUT_MS = 1000
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-replica-validity-factor", 0,
           "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", 0, "--repl-diskless-load", "swapdb")


def slot_of(key):
    """By the hash tag, if the key has one. CRC-16/XMODEM."""
    data = key.encode() if isinstance(key, str) else key
    begin = data.find(b"{")
    end = data.find(b"}", begin + 1)
    if begin >= 0 and end > begin + 1:
        data = data[begin + 1 : end]
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


def tags(first=0, last=SLOTS - 1, start="u"):
    """Texts of which the slot is between the two, without end: for the values of subjects."""
    number = 0
    while True:
        if first <= slot_of(f"{start}{number}") <= last:
            yield f"{start}{number}"
        number += 1


class InCluster:
    """What a node has beside a Store: a port for the cluster bus, and an id."""

    runs = False
    id = None
    bus_port = None

    def start(self, may_fail=False):
        if may_fail:
            self.bus_port = free_port()
        self.runs = super().start(may_fail)
        return self.runs

    def command(self):
        return [*super().command(), "--cluster-port", str(self.bus_port)]

    def kill(self):
        self.runs = False
        super().kill()

    def stop(self):
        self.runs = False
        super().stop()

    def pause(self):
        self.runs = False
        super().pause()

    def go_on(self):
        super().go_on()
        self.runs = True

    @property
    def peer_port(self):
        """The one that nodes and MIGRATE use."""
        return getattr(self, "tls_port", None) or self.port

    def must(self, *words):
        answer = self.ask(*words)
        if isinstance(answer, Error):
            raise AssertionError(f"{' '.join(map(str, words))}: {answer}")
        return answer

    def view(self):
        """Returns {id: (flags, id of the master or "-", slots as pairs)} of all nodes that this one knows."""
        found = {}
        for line in self.must("CLUSTER", "NODES").splitlines():
            name, _, flags, master, _, _, _, _, *slots = line.split()
            ranges = [tuple(map(int, (part.split("-") * 2)[:2])) for part in slots if not part.startswith("[")]
            found[name] = (flags.split(","), master, ranges)
        return found

    def sees_owner(self, slot):
        """The id of the node that serves a slot."""
        for name, (_, _, ranges) in self.view().items():
            if any(first <= slot <= last for first, last in ranges):
                return name
        return None


class Node(InCluster, Store):
    pass


class SecureNode(InCluster, SecureStore):
    """Nodes speak TLS with each other, too."""

    def command(self):
        return [*super().command(), "--tls-cluster", "yes", "--tls-replication", "yes"]


class Cluster:
    """with Cluster(3, 1) as cluster: three masters, each with a replica. cluster.nodes are the masters, then the replicas: node i
    begins as a replica of node i % masters. A node can be killed, paused and started again as any Store; it forgets its keys if
    it is killed, unless persistent, but not the cluster. ca: of support.certificates, for TLS beside the plain ports; password: of all
    nodes. spare: so many masters more, the last nodes, which have no slots. Further options are those of redis-server."""

    def __init__(self, masters=3, replicas=0, *options, ca=None, password=None, persistent=False, spare=0):
        self.masters, self.replicas = masters, masters * replicas
        self.ca, self.password = ca, password
        options = [*OPTIONS, *options, *(("--masterauth", password) if password else ())]
        more = {"password": password, "persistent": persistent}
        self.nodes = [SecureNode(ca, *options, **more) if ca else Node(*options, **more) for _ in range(masters * (1 + replicas) + spare)]

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        try:
            for node in self.nodes:
                self.stack.enter_context(node)
                node.id = node.must("CLUSTER", "MYID")
            self.make()
        except BaseException as why:
            self.stack.__exit__(type(why), why, why.__traceback__)
            raise
        return self

    def __exit__(self, *details):
        return self.stack.__exit__(*details)

    def make(self):
        for i, node in enumerate(self.nodes):
            node.must("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < self.masters:
                node.must("CLUSTER", "ADDSLOTSRANGE", *self.first_slots(i))
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.must("CLUSTER", "MEET", "127.0.0.1", other.peer_port, other.bus_port)
        replicas = [(self.nodes[i], self.nodes[i % self.masters]) for i in range(self.masters, self.masters + self.replicas)]
        for node, master in replicas:
            until(lambda: node.ask("CLUSTER", "REPLICATE", master.id) == "OK", "a node becomes a replica")
        for node, _ in replicas:
            until(lambda: "master_link_status:up" in node.ask("INFO", "replication"), "a replica reaches its master")
        for node in self.nodes:
            until(lambda: self.is_known(node), "the nodes find each other")
        self.wait_ok()

    def is_known(self, node):
        """Does it know all others, and the replicas as such?"""
        view = node.view()
        return len(view) == len(self.nodes) and sum("slave" in flags for flags, _, _ in view.values()) == self.replicas

    def wait_ok(self):
        """Until all nodes that run serve."""
        for node in self.nodes:
            until(lambda: not node.runs or "cluster_state:ok" in node.ask("CLUSTER", "INFO"), "the cluster serves")

    # ---- where things are ----

    def first_slots(self, i):
        """The first and the last of the slots that master i begins with."""
        return SLOTS * i // self.masters, SLOTS * (i + 1) // self.masters - 1

    @property
    def hosts(self):
        """All nodes as HOST:PORT,HOST:PORT; with TLS the ports for that."""
        return ",".join(f"127.0.0.1:{node.peer_port}" for node in self.nodes)

    def node(self, name):
        return next(node for node in self.nodes if node.id == name)

    def owner(self, slot, other_than=None):
        """The node that serves a slot, when all nodes that run agree."""

        def found():
            seen = {node.sees_owner(slot) for node in self.nodes if node.runs}
            return seen.pop() if len(seen) == 1 and None not in seen and (other_than is None or other_than.id not in seen) else None

        return self.node(until(found, "the nodes agree on a slot"))

    def owner_of_key(self, key):
        return self.owner(slot_of(key))

    def ask(self, command, script, keys, key, *arguments):
        """A script about one key, wherever that is."""
        return self.owner_of_key(key).ask(command, script, keys, key, *arguments)

    def replicas_of(self, node):
        """As the node itself sees it."""
        return [self.node(name) for name, (_, master, _) in node.view().items() if master == node.id]

    # ---- failures ----

    def wait_failover(self, slot, node):
        """Until another one than this serves the slot: that one. An election needs most of the masters, so 3 at least."""
        return self.owner(slot, other_than=node)

    def failover(self, replica):
        """A planned one: the replica takes the place of its master, which becomes its replica."""

        master = self.node(replica.view()[replica.id][1])

        def done():
            views = [node.view() for node in self.nodes if node.runs]
            return all("master" in view[replica.id][0] and view[master.id][1] == replica.id for view in views)

        replica.must("CLUSTER", "FAILOVER")
        until(done, "the replica becomes a master")

    # ---- moving slots ----

    def move_begin(self, slot, source, target):
        """From now on the slot is MIGRATING and IMPORTING, until move_end."""
        target.must("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.must("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def move_key(self, key, source, target):
        """False: there is no such key."""
        words = ("AUTH", self.password) if self.password else ()
        return source.must("MIGRATE", "127.0.0.1", target.peer_port, key, 0, 10000, *words) == "OK"

    def move_keys(self, slot, source, target, most=1000):
        """One after the other; returns the number of keys that were moved."""
        return sum(self.move_key(key, source, target) for key in source.must("CLUSTER", "GETKEYSINSLOT", slot, most))

    def move_end(self, slot, source, target, wait=True):
        """No key may be left at the source."""
        target.must("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        source.must("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        if wait:
            expect(self.owner(slot).id, target.id, "the slot has moved")

    def move(self, slots, source, target):
        """Slots with all of their keys, one slot after the other."""
        for slot in slots:
            self.move_begin(slot, source, target)
            while self.move_keys(slot, source, target, 100):
                pass
            self.move_end(slot, source, target, wait=slot == slots[-1])
