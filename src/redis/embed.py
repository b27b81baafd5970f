#!/usr/bin/env python3
"""Writes the scripts of the store as C: embed.py OUT FILE... Each is named after its file. A line "--@ OTHER" stands for the
text of that file beside it: a function would have to be made anew by every call, and costs more than what it does."""

import hashlib
import os
import re
import sys


def literal(line):
    """One line as a C string; bytes that C or its trigraphs would read as something else are escaped."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in line) + '"'


def read(path):
    with open(path, "rb") as file:
        text = file.read()
    return re.sub(rb"(?m)^ *--@ (\S+)\n", lambda line: read(os.path.join(os.path.dirname(path), line[1].decode())), text)


out = sys.argv[1]
scripts = {os.path.splitext(os.path.basename(path))[0]: read(path) for path in sys.argv[2:]}
with open(out, "w", encoding="ascii") as c:
    c.write('#include "redis/script.h"\n')
    for name, text in scripts.items():
        c.write(f"\nstatic const char {name}_text[] =\n" + "\n".join(map(literal, text.splitlines(keepends=True))) + ";\n")
    c.write("\nconst struct script scripts[SCRIPTS] = {\n")
    for name, text in scripts.items():
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        c.write(f'    [SCRIPT_{name.upper()}] = {{ "{name}", {{ {name}_text, sizeof {name}_text - 1 }}, "{sha}" }},\n')
    c.write("};\n")
