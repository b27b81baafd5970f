"""What the tests of the page share: going to a view, taking its picture."""

import os

from support import BUILD

SHOTS = os.path.join(BUILD, "page")


def token(s, role):
    with open(os.path.join(s.data, f"{role}-token"), encoding="ascii") as file:
        return file.read().strip()


def shot(page, name):
    os.makedirs(SHOTS, exist_ok=True)
    page.screenshot(os.path.join(SHOTS, f"{name}.png"))


def view(page, hash_part, *texts):
    page.go(hash_part)
    page.see(*texts)
