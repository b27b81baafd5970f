"""A running `weir serve` whose every HTTP answer is held against its own OpenAPI document."""

import json
import re
import urllib.parse

import pytest

from support.service import Service

jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is missing")

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


class Document:
    """What /v1/openapi.json promises."""

    def __init__(self, document):
        self.document = document
        self.resolver = jsonschema.RefResolver.from_schema(document)
        self.seen = set()
        self.patterns = []
        for path, item in document["paths"].items():
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
            self.patterns.append((pattern, item))

    def operations(self):
        return {item[method]["operationId"] for _, item in self.patterns for method in METHODS if method in item}

    def operation(self, method, path):
        for pattern, item in self.patterns:
            if pattern.fullmatch(path):
                method = method.lower()
                return item.get("get" if method == "head" and "head" not in item else method)
        return None

    def follow(self, part):
        while "$ref" in part:
            part = self.resolver.resolve(part["$ref"])[1]
        return part

    def fits(self, schema, value):
        jsonschema.Draft202012Validator(schema, resolver=self.resolver).validate(value)

    def check(self, method, target, body, answer):
        """The status is one that is promised, and the body is as promised for it. What is taken is documented, too."""
        path = urllib.parse.urlsplit(target).path
        operation = self.operation(method, path)
        if operation is None:
            self.fits({"$ref": "#/components/schemas/Error"}, answer.json())
            if answer.status not in (401, 403, 404, 405):
                raise AssertionError(f"{method} {target} is not in the document, and was answered with {answer.status}")
            return
        self.seen.add(operation["operationId"])
        if "requestBody" in operation and answer.status < 300:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            if schema:
                self.fits(schema, json.loads(body))
        promised = operation["responses"].get(str(answer.status), operation["responses"].get("default"))
        if promised is None:
            raise AssertionError(f"{method} {target}: {answer.status} is not promised: {answer.body[:500]!r}")
        promised = self.follow(promised)
        kinds = promised.get("content", {})
        if method == "HEAD" or not answer.body:
            if kinds and method != "HEAD":
                raise AssertionError(f"{method} {target}: {answer.status} without a body")
            return
        kind = answer.headers["Content-Type"].split(";")[0]
        if kinds and kind not in kinds:
            raise AssertionError(f"{method} {target}: {kind} is not promised")
        if kind == "application/json" and kinds:
            self.fits(kinds[kind]["schema"], answer.json())


class Checked(Service):
    """A service that is held to its document."""

    document = None  # one for all: they run the same program

    def ask(self, where, method, path, body=None, headers=None):
        answer = super().ask(where, method, path, body, headers)
        if Checked.document is None:
            raw = super().ask(self.admin, "GET", "/v1/openapi.json", None, {"Authorization": f"Bearer {self.token}"})
            Checked.document = Document(json.loads(raw.body))
        Checked.document.check(method, path, body, answer)
        return answer
