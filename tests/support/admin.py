"""What the tests of the admin API share: a rule, changes of it, errors."""

import support
from support import expect, has

LIMITED = {"match": {"event": "e"}, "by": ["key"], "limits": [{"name": "hour", "algorithm": "fixed_window", "max": 2, "per": "1h"}]}
JSON = {"Content-Type": "application/json"}


def refused(answer, status, *parts):
    """An error that says these."""
    expect(answer.status, status, answer.body)
    document = answer.json()
    has(document["error"] + "\n" + document.get("hint", ""), *parts)


def limited(most):
    return {**LIMITED, "limits": [{**LIMITED["limits"][0], "max": most}]}


def put(s, name, rule, status=200, **headers):
    answer = s.steer("PUT", f"/v1/rules/{name}", rule, {name.replace("_", "-"): value for name, value in headers.items()})
    expect(answer.status, status, answer.body)
    return answer


def cli(s, *words):
    done = support.weir("rules", *words, "--from", f"sqlite:{s.data}/rules.db")
    expect(done.returncode, 0, done.stderr)
    return done.stdout.decode()
