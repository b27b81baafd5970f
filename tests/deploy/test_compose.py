"""compose.yaml: it follows the schema, what it mounts exists, and its weir, Redis, nginx and Prometheus understand what they are given.
There is no engine here: the programs of this host run with the same arguments and files."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile

import jsonschema
import pytest
import yaml

from support import ENVIRONMENT, ROOT, WEIR, expect, free_port, has, until
from support.deploy import COMPOSE, module_file
from support.service import Service
from support.store import Store


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(read("compose.yaml"))


@pytest.fixture
def secrets(folder):
    """Made by the script that users run, in a copy of its folder."""
    shutil.copy(os.path.join(ROOT, "deploy/compose/make-secrets"), folder)
    subprocess.run([folder + "/make-secrets"], check=True, capture_output=True)
    return folder + "/secrets"


def test_schema(compose):
    jsonschema.validate(compose, json.loads(module_file(*COMPOSE)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**compose, "services": {"weir": {"imgae": "weir"}}}, json.loads(module_file(*COMPOSE)))


def test_names_and_files(compose):
    """Everything that a service names is there."""
    for name, service in compose["services"].items():
        for kind in ("secrets", "networks"):
            expect(set(service.get(kind, [])) <= set(compose[kind]), True, f"{kind} of {name}")
        expect(set(service.get("depends_on", {})) <= set(compose["services"]), True, name)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith("."):
                expect(source in compose["volumes"], True, f"{source} of {name}")
            else:
                expect(os.path.exists(os.path.join(ROOT, source)), True, f"{source} of {name}")
        for port in service.get("ports", []):
            expect(port.startswith("127.0.0.1:"), True, f"{port} of {name} is for this host only")
    weir = compose["services"]["weir"]
    expect(os.path.exists(os.path.join(ROOT, weir["build"]["dockerfile"])), True)
    expect((weir["read_only"], weir["cap_drop"]), (True, ["ALL"]))
    drain = next(word for word in weir["command"] if word.startswith("--drain="))
    expect(int(weir["stop_grace_period"].removesuffix("s")) > int(re.search(r"(\d+)s", drain)[1]), True, "time to drain")


def test_secrets(secrets):
    """The files are readable in the containers, the folder is closed on the host, and a second run changes nothing."""
    before = {name: read(secrets, name) for name in os.listdir(secrets)}
    expect(sorted(before), ["admin-token", "grafana-password", "read-token", "redis-password", "tokens"])
    expect(oct(os.stat(secrets).st_mode & 0o777), "0o700")
    for name in before:
        expect(oct(os.stat(os.path.join(secrets, name)).st_mode & 0o777), "0o644", name)
    subprocess.run([os.path.dirname(secrets) + "/make-secrets"], check=True, capture_output=True)
    expect({name: read(secrets, name) for name in os.listdir(secrets)}, before)


class Composed(Service):
    """The service weir of compose.yaml as a process of this host."""

    def __init__(self, compose, secrets, store):
        super().__init__(rules=read("deploy/compose/rules/rules.yaml").replace("172.30.83.0/24", "127.0.0.0/8"))
        self.words, self.secrets, self.store = compose["services"]["weir"]["command"], secrets, store

    def command(self):
        moved = {"/var/lib/weir": self.data, "/run/weir": os.environ["RUNTIME_DIRECTORY"], "/etc/weir/rules.yaml": self.rules_file,
                 "/run/secrets": self.secrets, "redis:6379": f"127.0.0.1:{self.store.port}"}
        words = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", word) for word in self.words]
        for old, new in moved.items():
            words = [word.replace(old, new) for word in words]
        self.flags = [part for word in words[1:] for part in word.split("=", 1)]
        return [WEIR, *words, "--store-deadline=10s"]


@pytest.fixture
def running(compose, secrets):
    with Store(password=read(secrets, "redis-password")) as store, Composed(compose, secrets, store) as service:
        yield service


def test_weir_and_redis(running, secrets):
    statuses = [running.check(event="ocr", key="u1").status for _ in range(21)]
    # The natural hour may end in between: then all of them fit.
    expect(statuses[:20], [200] * 20)
    expect(int(running.store.ask("DBSIZE")) > 0, True, "Redis counts")
    bearer = {"Authorization": "Bearer " + read(secrets, "read-token"), "Host": "weir:8081"}
    metrics = running.ask(running.admin, "GET", "/metrics", headers=bearer)
    expect(metrics.status, 200, "Prometheus")
    has(metrics.body.decode(), "weir_store_up 1")
    bearer["Authorization"] = "Bearer " + read(secrets, "admin-token")
    expect(running.ask(running.admin, "GET", "/v1/session", headers=bearer).json()["role"], "admin")


def configuration(folder, weir_port, port):
    """Of compose.yaml, with files in a folder; the application is at a unix socket."""
    text = read("deploy/compose/nginx.conf")
    application = f"unix:{folder}/application"
    for old, new in (("weir:8080", f"127.0.0.1:{weir_port}"), ("listen 8000", f"listen 127.0.0.1:{port}"), ("listen 127.0.0.1:3000", f"listen {application}"),
                     ("http://127.0.0.1:3000", f"http://{application}"), ("/tmp/nginx.pid", f"{folder}/pid"), ("/dev/stderr", f"{folder}/error"),
                     ("/dev/stdout", f"{folder}/access")):
        expect(old in text, True, old)
        text = text.replace(old, new)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return text.replace("http {\n", "http {\n" + temporary, 1)


def listens(process, folder):
    """True: it has its ports. False: it has ended, for somebody else may have the port."""
    until(lambda: process.poll() is not None or os.path.exists(folder + "/pid"), "nginx listens")
    if process.poll() is None:
        return True
    has(read(folder, "error"), "Address already in use")
    return False


@contextlib.contextmanager
def nginx(weir_port):
    """With the configuration of compose.yaml; the port at which it listens."""
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            port, folder = free_port(), stack.enter_context(tempfile.TemporaryDirectory())
            os.chmod(folder, 0o755)
            with open(folder + "/nginx.conf", "w", encoding="utf-8") as out:
                out.write(configuration(folder, weir_port, port))
            command = ["nginx", "-p", folder, "-e", folder + "/error", "-c", folder + "/nginx.conf", "-g", "daemon off;"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            if listens(process, folder):
                break
        yield port


def test_nginx(running):
    """Ten requests pass; then the answer is 429 and says how long to wait. The bucket refills one a second."""
    with nginx(running.http[1]) as port:
        url = f"http://127.0.0.1:{port}/"
        done = subprocess.run(["curl", "-si", *[url] * 200], capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    statuses = re.findall(r"^HTTP/1.1 (\d+)", done, re.MULTILINE)
    expect(statuses[:10], ["200"] * 10)
    expect("429" in statuses, True, "refused")
    has(done, "hello from the application", "Retry-After: 1", 'RateLimit-Policy: "per-address/', "Too many requests")


def test_prometheus(compose, secrets, folder):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    text = read("deploy/compose/prometheus.yaml").replace("/run/secrets", secrets)
    for volume in compose["services"]["prometheus"]["volumes"]:
        source, target = volume.split(":")[:2]
        if source.startswith("./"):  # else it is a volume with a name
            text = text.replace(target, os.path.join(ROOT, source))
    with open(folder + "/prometheus.yaml", "w", encoding="utf-8") as out:
        out.write(text)
    done = subprocess.run(["promtool", "check", "config", folder + "/prometheus.yaml"], capture_output=True, text=True, check=False)
    expect(done.returncode, 0, done.stdout + done.stderr)
    has(read("deploy/compose/grafana/datasources/prometheus.yaml"), "http://prometheus:9090")
    provider = yaml.safe_load(read("deploy/compose/grafana/dashboards/weir.yaml"))["providers"][0]
    mounted = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    expect(provider["options"]["path"] in [os.path.dirname(path) for path in mounted], True, "the dashboard is where Grafana looks")
