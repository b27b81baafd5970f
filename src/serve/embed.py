#!/usr/bin/env python3
"""Writes files as C strings, for what the service carries with it:

    embed.py OUT NAME FILE [NAME FILE]...
    embed.py --page OUT FILE...             as a table of files that browsers get
"""

import hashlib
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


def literal(line):
    """One line as a C string; bytes that C or its trigraphs would read as something else are escaped."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in line) + '"'


def literals(path):
    with open(path, "rb") as file:
        return "\n".join(map(literal, file.read().splitlines(keepends=True)))


def page_file(path):
    with open(path, "rb") as file:
        tag = hashlib.sha256(file.read()).hexdigest()[:16]
    name = os.path.basename(path)
    kind = TYPES[os.path.splitext(name)[1]]
    size = os.path.getsize(path)
    return f'    {{ "{name}", "{kind}", "\\"{tag}\\"", {size}, {literals(path)} }},\n'


def main(words):
    page = words[0] == "--page"
    out, words = words[page], words[page + 1 :]
    with open(out, "w", encoding="ascii") as c:
        c.write('#include "serve/embedded.h"\n')
        if page:
            c.write("\nconst struct embedded_file embedded_page[] = {\n" + "".join(map(page_file, words)))
            c.write("};\nconst size_t embedded_page_count = sizeof embedded_page / sizeof *embedded_page;\n")
            return
        for name, path in zip(words[::2], words[1::2]):
            c.write(f"\nconst char embedded_{name}[] =\n" + literals(path) + ";\n")
            c.write(f"const size_t embedded_{name}_len = sizeof embedded_{name} - 1;\n")


main(sys.argv[1:])
