"""A real Prometheus of a test's own: on a free port of loopback, in a folder of its own, gone at the end."""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from support import DEADLINE_S, free_port, until

INTERVAL = "500ms"
MISSING = [name for name in ("prometheus", "promtool") if not shutil.which(name)]


class Prometheus:
    """with Prometheus(services, rules=PATH) as p: p.query("up"). services: each is scraped with its read token, as the job weir."""

    def __init__(self, services, rules=None):
        self.services, self.rules = services, rules

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="prometheus")
        self.log = os.path.join(self.folder.name, "log")
        self.where = f"127.0.0.1:{free_port()}"
        configuration = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [self.rules] if self.rules else [],
            "scrape_configs": [
                # One job of several entries: each service has a token of its own.
                {"job_name": f"weir-{number}", "authorization": {"credentials_file": os.path.join(s.data, "read-token")},
                 "static_configs": [{"targets": ["{}:{}".format(*s.admin)]}],
                 "relabel_configs": [{"target_label": "job", "replacement": "weir"}]}
                for number, s in enumerate(self.services)
            ],
        }
        path = os.path.join(self.folder.name, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(configuration, out)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder.name}/data", f"--web.listen-address={self.where}",
                 "--log.level=warn"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"},
            )
        try:
            until(self.ready, lambda: "Prometheus is ready: " + open(self.log, encoding="utf-8").read(), pause=0.05)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self.folder.cleanup()

    def ready(self):
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8") as log:
                raise AssertionError(f"prometheus ended with {self.process.returncode}: {log.read()}")
        try:
            with urllib.request.urlopen(f"http://{self.where}/-/ready", timeout=DEADLINE_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        """The data of an answer of its API; an error of a query is one of the test."""
        url = f"http://{self.where}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as why:
            raise AssertionError(f"{parameters}: {why.read().decode()}") from why
        if found["status"] != "success" or found.get("warnings"):
            raise AssertionError(f"{parameters}: {found}")
        return found["data"]

    def query(self, expression):
        """[(labels, value), …]"""
        return [(sample["metric"], float(sample["value"][1])) for sample in self.ask("query", query=expression)["result"]]

    def firing(self):
        """{name: [alert, …]}"""
        found = {}
        for alert in self.ask("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found
