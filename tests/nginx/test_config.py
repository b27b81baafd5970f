"""What `nginx -t` says about mistakes: one sentence, and where it is."""

import os
import re

from support import expect
from support.gateway import ZONE, Gateway

LOCATION = "location / { weir main; }"
CELLS = "weir_zone main 1m rules=@FOLDER@/rules.yaml cells=@FOLDER@/%s;"

g = Gateway(http=ZONE, server=LOCATION, rules={
    "rules": "rules: []",
    "bad": "rules:\n  - { id: good, limits: 1 per 1s }\n  - { id: ocr, limits: 10/60s }\n",
    "broken": "rules: [ {\n",
    "empty": "",
    "shared": "rules:\n  - { id: all, counters: shared, limits: 1 per 1s }\n",
    "leased": "rules:\n  - { id: all, lease: true, limits: 5 per day }\n"
              "  - { id: none, mode: \"off\", counters: shared, limits: 1 per 1s }\n",
})


def refused(wanted, http=ZONE, server=LOCATION, main="", lines=1):
    """One sentence, which holds `wanted` and ends with file and line of nginx.conf."""
    status, said = g.test_config(http, server, main)
    found = re.findall(r"\[emerg\].*", said)
    expect((status, len(found)), (1, lines), f"{wanted}: {said}")
    expect(wanted in found[0], True, f"{wanted!r} in {found[0]!r}")
    expect(bool(re.search(r" in \S*/tried\.conf:\d+$", found[0])), True, f"the place in {found[0]!r}")
    return found[0]


def accepted(http=ZONE, server=LOCATION):
    expect(g.test_config(http, server), (0, ""), f"{http} {server}")


def test_good_ones():
    """What is good."""
    accepted()
    accepted("weir_zone main 64k rules=@FOLDER@/rules.yaml; weir_zone other 2m rules=@FOLDER@/rules.yaml; weir other;")
    accepted(ZONE + "weir_trusted_proxies none;")
    accepted(ZONE + "weir_trusted_proxies 10.0.0.0/8; weir_trusted_proxies 127.0.0.1;")
    accepted(ZONE + "weir_trusted_proxies 10.0.0.0/8 127.0.0.1 ::1 fd00::/8; weir_headers openai; weir_dry_run on;")
    accepted(server="weir main; location / { weir off; }"
             "location /a { weir main after_auth user=$arg_u key=a$arg_k-$arg_l event=b; }"
             "location /b { weir main ip=$arg_i host=$host method=GET path=$uri cost=2 header:X-A=$arg_a header:X-B=b; }")
    accepted("weir_zone main 1g rules=@FOLDER@/rules.yaml;")
    accepted(server=LOCATION + "location = /status { weir_status main; }")
    accepted(http="weir main;" + ZONE, server="location / { weir_headers off; weir_dry_run off; }")


def test_zones():
    refused('"api"', server="location / { weir api; }")
    refused('"api"', server=LOCATION + "location /s { weir_status api; }")
    refused("twice", ZONE + ZONE)
    for name in ("''", "off"):
        refused("name", ZONE.replace("main", name), server="")
    refused('""', server="location / { weir ''; }")
    refused("weir_zone", "weir_zone main;")
    refused("rules=", "weir_zone main 1m;")
    refused("cells", "weir_zone main 1m rules=@FOLDER@/rules.yaml keys=7;")
    refused("`rules=` does not name a file", "weir_zone main 1m rules=;")
    refused("`cells=` does not name a file", "weir_zone main 1m rules=@FOLDER@/rules.yaml cells=;")
    refused(f"rules={g.path('bad.yaml')}", "weir_zone main 1m rules=@FOLDER@/rules.yaml rules=@FOLDER@/bad.yaml;")
    refused("size is missing", "weir_zone main rules=@FOLDER@/rules.yaml;")
    for size in ("0", "1k", "-5m", "lots", "99999999999999999999g"):
        refused("size", f"weir_zone main {size} rules=@FOLDER@/rules.yaml;")


def test_places():
    """Places of directives."""
    refused("not allowed here", main=ZONE)
    refused("not allowed here", server=ZONE)
    refused("not allowed here", server="weir_trusted_proxies none;")
    refused("not allowed here", server="weir_status main;")


def test_uses():
    """Weir and what belongs to it."""
    refused("usr=", server="location / { weir main usr=$arg_a; }")
    refused("after_authentication", server="location / { weir main after_authentication; }")
    refused("twice", server="location / { weir main user=a user=b; }")
    refused("header", server="location / { weir main header:=a; }")
    refused("header", server="location / { weir main header:X-A; }")
    refused("twice", server="location / { weir main header:X-A=a header:x-a=b; }")
    refused("cost", server="location / { weir main cost=some; }")
    refused("main", server="location / { weir main; weir main key=a; }")
    refused("off", server="location / { weir main; weir off; }")
    refused("off", server="location / { weir off; weir main; }")
    refused("weir", server="location / { weir; }")
    refused("sometimes", server="location / { weir_headers sometimes; }")
    refused("weir_dry_run", server="location / { weir_dry_run maybe; }")


def test_rules_of_many_hosts():
    """An nginx does not ask a store. Who does has to reach its cells."""
    cells = CELLS % "leased"
    refused("shared.yaml:2: rule all counts in the store that many hosts share (`counters: shared`), and nothing here may wait "
            "for that; give it `lease: true`, or `counters: local`", ZONE.replace("rules.yaml", "shared.yaml"))
    refused("leased.yaml:2: rule all is leased, and the cells here are in memory, where nobody can put slices; give the cells "
            "file of the host's `weir serve --counters` (in nginx cells=FILE)", ZONE.replace("rules.yaml", "leased.yaml"))
    accepted(cells.replace("rules.yaml", "leased.yaml"))


def test_costs_by_unit():
    def location(words):
        return g.test_config(server=f"location / {{ weir main {words}; }}")
    for words, wanted in (
        ("cost:=1", "write a cost as cost:UNIT=VALUE"),
        ("cost:tokens", "write a cost as cost:UNIT=VALUE"),
        ("cost:a/b=1", "write a cost as cost:UNIT=VALUE"),
        ("cost:tokens=x", "the cost must be a whole number"),
        ("cost:tokens=1 cost:tokens=2", "`cost:tokens=` is given twice"),
        ("cost=1 cost:requests=2", "`cost:requests=` is given twice"),
        (" ".join(f"cost:u{n}=1" for n in range(17)), "`cost:u16=` is too many"),
    ):
        status, said = location(words)
        expect((status, wanted in said), (1, True), said)
    expect(location("cost=2 cost:tokens=$arg_tokens cost:b.c-d_e=5")[0], 0)


def test_costs_of_the_response():
    for name in ("bytes_sent", "body_bytes_sent", "upstream_response_length", "upstream_bytes_received"):
        refused(f"weir: `cost=${name}`: ${name} is not known before the response; charge it afterwards: weir_after cost=${name};",
                server=f"location / {{ weir main cost=${name}; }}")
        accepted(server=f"location / {{ weir main; weir_after cost=${name}; }}")
    for value in ("$BYTES_SENT", "${bytes_sent}", "1$arg_n$bytes_sent"):
        refused(f"weir_after cost:bytes={value};", server=f"location / {{ weir main user=$arg_u cost:bytes={value}; }}")
    accepted(server="location / { weir main cost=$bytes_sent_x; }", http=ZONE + "map $arg_n $bytes_sent_x { default 1; }")


def test_variables():
    """nginx's own sentence, without a place: it looks for them at the end."""
    status, said = g.test_config(server="location / { weir main user=$nothing; }")
    expect((status, 'unknown "nothing" variable' in said), (1, True), said)


def test_networks():
    for network in ("10.0.0.0/33", "example.com", "300.1.1.1", "::1/129", "10.0.0.0/8,127.0.0.1", "10.0.0.0/8 none",
                    "none 10.0.0.0/8", "10.0.0.0/8; weir_trusted_proxies none", "none; weir_trusted_proxies 10.0.0.0/8"):
        refused("weir_trusted_proxies", ZONE + f"weir_trusted_proxies {network};")
    refused("weir_trusted_proxies", ZONE + "weir_trusted_proxies;")


def test_rules():
    for name, wanted in (
        ("missing", "missing.yaml"),
        ("bad", "bad.yaml:3: rule ocr: limits: must look like"),
        ("broken", "broken.yaml:"),
        ("empty", "empty.yaml"),
    ):
        refused(wanted, f"weir_zone main 1m rules=@FOLDER@/{name}.yaml;")
    os.makedirs(g.path("folder.yaml"), exist_ok=True)
    refused("folder.yaml", "weir_zone main 1m rules=@FOLDER@/folder.yaml;")
    g.write_rules("rules:\n  - { id: a, limits: 1 }\n  - { id: b, limits: 2 }\n", "two-bad")
    refused("two-bad.yaml:2: rule a", "weir_zone main 1m rules=@FOLDER@/two-bad.yaml;", lines=2)


def test_cells():
    accepted(CELLS % "good")
    accepted(CELLS % "good")
    refused("good", (CELLS % "good").replace("1m", "2m"))
    refused("good", (CELLS % "good").replace("1m", "512k"))
    g.write("foreign", "something else " * 1000)
    refused("foreign", CELLS % "foreign")
    refused("no-folder/cells", CELLS % "no-folder/cells")
    os.makedirs(g.path("folder.yaml"), exist_ok=True)
    refused("folder.yaml", CELLS % "folder.yaml")
    with open(g.path("good"), "rb") as whole, open(g.path("torn"), "wb") as torn:
        torn.write(whole.read()[:10_000])
    refused("torn", CELLS % "torn")


def test_one_file_twice():
    """Two zones on one file. By whatever names."""
    accepted(CELLS % "good")
    os.symlink(g.path("good"), g.path("link"))
    os.link(g.path("good"), g.path("other-name"))
    names = (("good", "good"), ("good", "link"), ("good", "other-name"), ("good", "./good"), ("new", "new"), ("newer", "./newer"))
    for one, other in names:
        refused("is already the cells file of zone \"main\"", CELLS % one + (CELLS % other).replace("main", "other"))
