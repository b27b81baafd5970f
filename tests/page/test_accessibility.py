"""The page for everybody: contrast, screen readers, small windows, keys alone."""

import time

import pytest

from support import expect, has
from support.browser import Browser, until
from support.views import shot, view


@pytest.mark.parametrize("dark,width", [(False, 1280), (True, 1280), (False, 390)], ids=["light", "dark", "phone"])
def test_accessibility(served, dark, width):
    with Browser(width=width, dark=dark, height=850) as b:
        b.open(served)
        b.see("Sign in to weir")
        expect(b.accessibility(), [], "sign in")
        b.sign_in(served)
        for hash_part, text in (("#/", "Busiest rules"), ("#/refused?last=1h", "Refused"), ("#/rules", "ocr"), ("#/rule/ocr", "History"), ("#/refused/ocr/u1", "Limits"),
                                ("#/refused?find=u1", "Rules that know"), ("#/why?event=ocr&key=u1", "It would"), ("#/what-if", "Run"), ("#/plans", "free"), ("#/changes", "Undo")):
            view(b, hash_part, text)
            time.sleep(0.3)
            active = b.first("nav a[aria-current]").rect
            expect(active["x"] >= 0 and active["x"] + active["width"] <= width, True, f"the tab of {hash_part} is in view")
            # The colours are other ones in the dark; all else is as in the light.
            expect(b.accessibility(rules=["color-contrast", "link-in-text-block"] if dark else None), [], hash_part)
            wide = b.driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            expect(wide <= 0, True, f"{hash_part} is wider than the window by {wide}")
            shot(b, f"{'phone' if width < 600 else 'dark' if dark else 'light'}-{hash_part.strip('#/').split('/')[0].split('?')[0] or 'now'}")


def test_by_keyboard(served, page):
    """Everything can be reached and done with keys alone."""
    view(page, "#/rules", "ocr")
    page.driver.execute_script("document.querySelector('.skip').focus()")
    page.driver.switch_to.active_element.send_keys("\n")
    expect((page.driver.switch_to.active_element.tag_name, page.driver.current_url.split("#")[1]), ("h1", "/rules"), "skips to the content")
    page.driver.execute_script("document.querySelector('.skip').focus()")
    reached = set()
    for _ in range(60):
        page.driver.switch_to.active_element.send_keys("\ue004")
        reached.add(page.driver.switch_to.active_element.text or page.driver.switch_to.active_element.get_attribute("aria-label"))
    has("\n".join(map(str, reached)), "Throttle a call…", "New rule…", "Sign out", "Changes", "ocr")
    opener = page.button("Throttle a call…")
    page.driver.execute_script("arguments[0].focus()", opener)
    opener.send_keys("\n")
    until(page.dialog, "a dialog opens")
    page.escape()
    until(lambda: not page.find("dialog[open]"), "Escape closes it")
    expect(page.driver.switch_to.active_element.text, "Throttle a call…", "and one is where one was")
    page.click("New rule…")
    page.see("Which requests")

    def focused():
        return page.driver.execute_script("const one = document.activeElement; return one.labels?.[0]?.textContent ?? one.getAttribute('aria-label') ?? one.textContent")

    page.button("Add a limit").send_keys("\n")
    expect((focused(), len(page.find("dialog [aria-label^='Remove limit']"))), ("At most", 2), "in the new row")
    page.button("Remove limit 2").send_keys("\n")
    expect(focused(), "Add a limit")
    page.fill("counted as", "fixed window")
    expect(focused(), "counted as")
    page.button("Remove limit 1").send_keys("\n")
    expect(focused(), "Add a limit")
