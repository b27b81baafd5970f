"""The Helm chart: Helm accepts it, Kubernetes would accept what it renders, and `weir serve` does what the rendered arguments and probes
expect of it."""

import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile

import pytest
import yaml

from support import ROOT, WEIR, expect, has, until
from support.certificates import Authority
from support.deploy import CHART, SCHEMAS_VERSIONS, Kubernetes, helm
from support.service import Service
from support.store import SecureStore

VALUES = os.path.join(ROOT, "tests", "deploy", "values")
FILES = ("", "shared.yaml", "node.yaml", "one.yaml", "database.yaml")
PASSWORD = "secret-of-the-store"


def values(name):
    return ["--values", os.path.join(VALUES, name)] if name else []


def render(name, *more):
    """The manifests, by kind; those of one kind by name."""
    done = helm("template", "weir", CHART, "--namespace", "prod", *values(name), *more)
    expect(done.returncode, 0, done.stderr)
    found = {}
    for manifest in yaml.safe_load_all(done.stdout):
        if manifest:
            found.setdefault(manifest["kind"], {})[manifest["metadata"]["name"]] = manifest
    return found


def one(found, kind):
    expect(len(found[kind]), 1, kind)
    return next(iter(found[kind].values()))


def workload(found):
    return one(found, "DaemonSet" if "DaemonSet" in found else "Deployment")


def pod(found):
    return workload(found)["spec"]["template"]["spec"]


def args(found):
    return dict(arg.split("=", 1) for arg in pod(found)["containers"][0]["args"][1:])


# ---- what Helm and Kubernetes say ----


@pytest.mark.parametrize("name", FILES)
def test_lint(name):
    done = helm("lint", "--strict", CHART, *values(name))
    expect(done.returncode, 0, done.stdout + done.stderr)


@pytest.mark.parametrize("version", SCHEMAS_VERSIONS)
def test_schemas(version):
    kubernetes = Kubernetes(version)
    for name in FILES:
        for manifests in render(name).values():
            for manifest in manifests.values():
                kubernetes.validate(manifest)


def test_the_schemas_find_mistakes():
    kubernetes = Kubernetes(SCHEMAS_VERSIONS[-1])
    found = render("shared.yaml")
    bad = [(workload(found), lambda m: m["spec"]["template"]["spec"]["containers"][0].update(readinesProbe={})),
           (one(found, "NetworkPolicy"), lambda m: m["spec"].update(policyTypes="Ingress")),
           (one(found, "ServiceMonitor"), lambda m: m["spec"]["endpoints"][0].update(bearer="x"))]
    for manifest, spoil in bad:
        spoil(manifest)
        with pytest.raises(AssertionError):
            kubernetes.validate(manifest)


@pytest.mark.parametrize("flags, words", [
    (["kind=StatefulSet"], "kind must be one of"),
    (["replica=3"], "replica is not allowed"),
    (["data.existingClaim=disk"], "data.existingClaim needs kind: Deployment and replicas: 1"),
    (["cells.shared.enabled=true"], "cells.shared needs kind: DaemonSet"),
    (["store.address=redis://redis:6379"], "networkPolicy.egress must allow the store"),
    (["store.address=redis:6379"], "store.address"),
    (["tls.requireClientCertificates=true"], "needs tls.secretName and tls.clientAuthorities.name"),
    (["serviceMonitor.enabled=true", "tokens.existingSecret=x"], "serviceMonitor.tokenSecret.name must name the Secret"),
])
def test_wrong_values_are_refused(flags, words):
    done = helm("template", "weir", CHART, *(word for flag in flags for word in ("--set", flag)))
    expect(done.returncode, 1, done.stdout)
    has(done.stderr.replace("Additional property replica", "replica"), words)


# ---- what the manifests promise ----


@pytest.mark.parametrize("name", FILES)
def test_pods_have_no_privileges(name):
    spec = pod(render(name))
    expect(spec["securityContext"]["runAsNonRoot"], True)
    expect(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
    expect(spec["automountServiceAccountToken"], False)
    for container in spec["containers"] + spec.get("initContainers", []):
        context = container["securityContext"]
        expect((context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]), (True, False))
        expect(context["capabilities"]["drop"], ["ALL"])
    expect("add" in spec["containers"][0]["securityContext"]["capabilities"], False)
    # The init container of shared cells is the only one that runs as root.
    expect([c["name"] for c in spec.get("initContainers", [])], ["prepare"] if name == "node.yaml" else [])


@pytest.mark.parametrize("name", FILES)
def test_each_path_is_mounted(name):
    """Arguments name files; each of them is in a volume, which the pod has."""
    found = render(name)
    spec, container = pod(found), pod(found)["containers"][0]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    expect(sorted(mounts.values()), sorted(volume["name"] for volume in spec["volumes"]), "mounts and volumes")
    for value in args(found).values():
        for part in value.replace("?", "=").replace("&", "=").split("="):
            if part.startswith("/"):
                expect(any(part == path or part.startswith(path + "/") for path in mounts), True, f"{part} is in a volume")


@pytest.mark.parametrize("flags", [[], ["drainSeconds=60"], ["preStopSeconds=0", "drainSeconds=0"], ["preStopSeconds=20", "saveSeconds=30"]])
def test_the_pod_has_time_to_drain(flags):
    found = render("", *(word for flag in flags for word in ("--set", flag)))
    spec = pod(found)
    drain = int(args(found)["--drain"].removesuffix("s"))
    stop = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    expect(stop[0], "sleep")
    expect(spec["terminationGracePeriodSeconds"] > drain + int(stop[1]), True, "the pod is killed after the drain")


def test_budget_and_network():
    found = render("shared.yaml")
    expect(one(found, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1)
    rules = one(found, "NetworkPolicy")["spec"]["ingress"]
    expect([[port["port"] for port in rule["ports"]] for rule in rules], [["http", "resp", "grpc"], ["admin"]])
    # A node is drained without asking a budget, and one pod could never be moved.
    for name in ("node.yaml", "one.yaml"):
        expect("PodDisruptionBudget" in render(name), False, name)
    policy = one(render("one.yaml"), "NetworkPolicy")["spec"]
    expect((policy["ingress"], policy["policyTypes"]), ([], ["Ingress", "Egress"]), "nobody is let in")
    expect(render("node.yaml")["Service"]["weir"]["spec"]["internalTrafficPolicy"], "Local")


def test_monitor():
    """It selects the Service of the admin listener alone, and its token is one of those that the pods know."""
    found = render("shared.yaml")
    spec = one(found, "ServiceMonitor")["spec"]
    wanted = spec["selector"]["matchLabels"].items()
    selected = [s["metadata"]["name"] for s in found["Service"].values() if wanted <= s["metadata"]["labels"].items()]
    expect(selected, ["weir-admin"])
    expect(found["Service"]["weir-admin"]["spec"]["ports"][0]["name"], spec["endpoints"][0]["port"])
    credentials = spec["endpoints"][0]["authorization"]["credentials"]
    expect(credentials["key"] in found["Secret"][credentials["name"]]["stringData"], True)


# ---- what weir serve says ----


class Pod(Service):
    """The container of a rendered pod, as a process of this host: its arguments with folders of a test, and ports that are free."""

    def __init__(self, found, contents, store=None):
        super().__init__(rules=False)
        self.found, self.contents, self.store = found, contents, store

    def __enter__(self):
        # Where the kubelet would mount a tmpfs.
        self.memory = tempfile.mkdtemp(prefix="weir-tests-", dir="/dev/shm")
        return super().__enter__()

    def __exit__(self, *details):
        try:
            super().__exit__(*details)
        finally:
            shutil.rmtree(self.memory)

    def path(self, text):
        for begin, folder in (("/var/lib/weir", self.data), ("/run/weir", self.memory), ("/etc/weir", os.path.join(self.folder.name, "etc"))):
            text = text.replace(begin, folder)
        return text

    def command(self):
        spec = pod(self.found)
        os.makedirs(self.data, exist_ok=True)
        for mount in spec["containers"][0]["volumeMounts"]:
            volume = next(volume for volume in spec["volumes"] if volume["name"] == mount["name"])
            if "configMap" in volume or "secret" in volume:
                self.fill(self.path(mount["mountPath"]), volume)
        words = [self.path(word) for word in spec["containers"][0]["args"]]
        for port in spec["containers"][0]["ports"]:
            words = [word.replace(f"0.0.0.0:{port['containerPort']}", "127.0.0.1:0") for word in words]
        if self.store:
            words = [word.replace("redis.example:6379", self.store) for word in words]
        self.flags = [part for word in words[1:] for part in word.split("=", 1)]
        return [WEIR, *words]

    def fill(self, folder, volume):
        """As the kubelet does: the files are links to links, and a new version replaces ..data."""
        kind = "configMap" if "configMap" in volume else "secret"
        name = volume[kind].get("name") or volume[kind]["secretName"]
        known = self.found.get("ConfigMap" if kind == "configMap" else "Secret", {}).get(name)
        files = dict(self.contents.get(name) or known.get("data") or known["stringData"])
        if "items" in volume[kind]:
            files = {item["path"]: files[item["key"]] for item in volume[kind]["items"]}
        os.makedirs(folder, exist_ok=True)
        version = tempfile.mkdtemp(prefix="..", dir=folder)
        os.chmod(version, 0o755)
        for file, text in files.items():
            with open(os.path.join(version, file), "w", encoding="utf-8") as out:
                out.write(text)
            os.chmod(os.path.join(version, file), volume[kind].get("defaultMode", 0o644))
            if not os.path.islink(os.path.join(folder, file)):
                os.symlink(f"..data/{file}", os.path.join(folder, file))
        os.symlink(os.path.basename(version), os.path.join(folder, "..data.new"))
        os.rename(os.path.join(folder, "..data.new"), os.path.join(folder, "..data"))

    def request(self, where, path, tls, **more):
        """One request, over TLS if there is a context."""
        connection = http.client.HTTPConnection("localhost", where[1], timeout=60)
        if tls:
            connection = http.client.HTTPSConnection("localhost", where[1], timeout=60, context=tls)
        try:
            connection.request("POST" if "body" in more else "GET", path, **more)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def probes(self):
        """What each probe of the container is answered; the kubelet does not look at certificates."""
        container = pod(self.found)["containers"][0]
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = container[probe]["httpGet"]
            where = getattr(self, get["port"])
            yield probe, lambda: self.request(where, get["path"], blind if get["scheme"] == "HTTPS" else None)


def check_probes(running):
    for probe, ask in running.probes():
        until(lambda: ask()[0] == 200, f"the {probe} succeeds")


QUESTION = json.dumps({"event": "example", "key": "u1"})
JSON = {"Content-Type": "application/json"}


def ask_to_the_end(running, tls=None, headers=None):
    """The limit is ten: the eleventh is refused."""
    statuses = [running.request(running.http, "/v1/check", tls, body=QUESTION, headers={**JSON, **(headers or {})})[0] for _ in range(11)]
    expect(statuses, [200] * 10 + [429])


def test_defaults_run():
    found = render("")
    tokens = one(found, "Secret")["stringData"]
    with Pod(found, {}) as running:
        check_probes(running)
        ask_to_the_end(running)
        expect(bool(running.grpc), True, "gRPC")
        expect(os.path.islink(os.path.join(running.data, "cells")), True, "the table is in memory")
        for name, status in (("read-token", 200), ("ask-token", 401)):
            bearer = {"Authorization": f"Bearer {tokens[name]}"}
            expect(running.request(running.admin, "/metrics", None, headers=bearer)[0], status, name)
        for host, status in (("weir-admin.prod.svc:8081", 200), ("evil.example", 403)):
            expect(running.request(running.admin, "/readyz", None, headers={"Host": host})[0], status, host)


def test_a_changed_config_map_is_noticed():
    found = render("")
    with Pod(found, {}) as running:
        ask_to_the_end(running)
        changed = one(found, "ConfigMap")["data"]["rules.yaml"].replace("10 per 1h", "1000 per 1h")
        volume = next(volume for volume in pod(found)["volumes"] if volume["name"] == "rules")
        running.contents["weir-rules"] = {"rules.yaml": changed}
        running.fill(running.path("/etc/weir/rules"), volume)
        until(lambda: running.request(running.http, "/v1/check", None, body=QUESTION, headers=JSON)[0] == 200, "the new rules are in force")


def test_shared_runs():
    found = render("shared.yaml", "--set", "rules.file.rules[0].id=example,rules.file.rules[0].match.event=example", "--set",
                   "rules.file.rules[0].by={key},rules.file.rules[0].limits={10 per 1h},rules.file.rules[0].counters=shared",
                   "--set", "rules.file.rules[0].on_store_failure=deny", "--set", "store.deadline=10s")
    tokens = one(found, "Secret")["stringData"]
    with Authority() as ca, SecureStore(ca, certificate=ca.issue("redis"), password=PASSWORD) as store:
        certificate, key = ca.issue("weir")
        client = ssl.create_default_context(cafile=ca.path)
        client.load_cert_chain(*ca.issue("client"))
        contents = {"redis": {"password": PASSWORD}, "redis-ca": {"ca.crt": text(ca.path)}, "weir-clients": {"ca.crt": text(ca.path)},
                    "weir-tls": {"tls.crt": text(certificate), "tls.key": text(key)}}
        with Pod(found, contents, f"127.0.0.1:{store.tls_port}") as running:
            check_probes(running)
            expect(running.request(running.http, "/v1/check", client, body=QUESTION, headers=JSON)[0], 401, "without a token")
            ask_to_the_end(running, client, {"Authorization": f"Bearer {tokens['ask-token']}"})
            expect(int(store.ask("DBSIZE")) > 0, True, "the store counts")
            with pytest.raises((ssl.SSLError, OSError)):
                running.request(running.http, "/v1/check", ssl.create_default_context(cafile=ca.path), body=QUESTION, headers=JSON)


def test_shared_cells_run():
    found = render("node.yaml")
    with Pod(found, {}) as running:
        check_probes(running)
        ask_to_the_end(running)
        # Another program of the node, with the same rules and the cells of the node.
        rules, cells = running.path("/etc/weir/rules/rules.yaml"), running.path("/run/weir/cells")
        done = subprocess.run([WEIR, "check", "--rules", rules, "--cells", cells, "--event", "example", "--key", "u1"], capture_output=True, check=False)
        has(done.stdout.decode(), '"allowed":false')


def test_one_runs():
    found = render("one.yaml")
    with Authority() as ca:
        certificate, key = ca.issue("weir")
        contents = {"weir-tls": {"tls.crt": text(certificate), "tls.key": text(key)}, "my-tokens": {"tokens": "# none\n"}}
        with Pod(found, contents) as running:
            check_probes(running)
            ask_to_the_end(running, ssl.create_default_context(cafile=ca.path))


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
