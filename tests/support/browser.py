"""A real browser, headless: Debian's Chromium, driven by its chromedriver."""

import glob
import os
import subprocess
import tempfile
import zipfile

import pytest

import support
from support import BUILD

webdriver = pytest.importorskip("selenium.webdriver", reason="python3-selenium is missing")
from selenium.common.exceptions import ElementClickInterceptedException, NoSuchElementException, StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402

AXE = "axe-playwright-python==0.1.8"
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

# What WebDriver says of an element (its text as people see it, whether it is displayed) takes it milliseconds each time. So the
# browser first chooses, by a rule that is never too strict, and WebDriver judges those elements alone.
MAY_HAVE_NAME = """
const [selector, name, within] = arguments;
const plain = (text) => text.replace(/\\s+/g, " ").trim().toLowerCase();
return [...(within || document).querySelectorAll(selector)].filter(
  (one) => plain(one.innerText || "") === plain(name) || one.getAttribute("aria-label") === name);
"""
MAY_SHOW = """
const plain = (text) => text.replace(/\\s+/g, " ").trim().toLowerCase();
return plain(document.body.innerText).includes(plain(arguments[0]));
"""


# The page draws while a test looks at it.
NOT_YET = (ElementClickInterceptedException, NoSuchElementException, StaleElementReferenceException, IndexError)


def until(condition, what):
    """Waits for something on the page. Each look at it takes time of the browser."""

    def attempt():
        try:
            return condition()
        except NOT_YET:
            return False

    return support.until(attempt, what, pause=0.05)


def axe_source():
    """axe-core, from a package of PyPI that carries it."""
    folder = os.path.join(BUILD, "axe")
    if not glob.glob(folder + "/*.whl"):
        subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "-d", folder, AXE], check=True)
    with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
        return wheel.read("axe_playwright_python/axe.min.js").decode()


class Browser:
    """with Browser() as b: b.open(service), b.click("text"), b.see("text"), b.fill("label", "value")."""

    def __init__(self, width=1280, height=900, dark=False, zone="Europe/Berlin"):
        self.size, self.dark, self.zone = (width, height), dark, zone

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
                     "--disable-background-networking", "--no-first-run", "--hide-scrollbars", "--force-color-profile=srgb",
                     f"--user-data-dir={self.folder.name}/profile", f"--window-size={self.size[0]},{self.size[1]}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
        service.env = {**os.environ, "TMPDIR": self.folder.name, "HOME": self.folder.name}
        self.driver = webdriver.Chrome(service=service, options=options)
        self.command("Emulation.setTimezoneOverride", timezoneId=self.zone)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}])
        if self.size[0] < 600:
            self.command("Emulation.setDeviceMetricsOverride", width=self.size[0], height=self.size[1], deviceScaleFactor=1, mobile=True)
        return self

    def __exit__(self, *_):
        self.driver.quit()
        self.folder.cleanup()

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    # ---- moving ----

    def open(self, service, hash_part=""):
        self.base = f"http://127.0.0.1:{service.admin[1]}"
        self.driver.get(f"{self.base}/{hash_part}")

    def go(self, hash_part):
        self.driver.execute_script("location.hash = arguments[0]", hash_part)

    def sign_in(self, service, token=None, hash_part=""):
        self.open(service, hash_part)
        self.fill("Token", token or service.token)
        self.fill("Your name", "Zoë")
        self.click("Sign in")
        self.see("Sign out")

    # ---- looking ----

    def text(self):
        return self.driver.find_element(By.TAG_NAME, "body").text

    def shows(self, text):
        return self.driver.execute_script(MAY_SHOW, text) and text in self.text()

    def see(self, *texts):
        for text in texts:
            until(lambda: self.shows(text), lambda: f"the page shows {text!r}, not:\n{self.text()}")

    def gone(self, text):
        until(lambda: not self.shows(text), f"the page does not show {text!r} any more")

    def find(self, selector, within=None):
        return (within or self.driver).find_elements(By.CSS_SELECTOR, selector)

    def first(self, selector, within=None):
        """The first of them, once there is one."""
        return until(lambda: self.find(selector, within() if callable(within) else within)[0], f"there is {selector!r}")

    def row(self, *texts):
        """The row of a table that has all of these texts; for `within` of click()."""
        for one in self.find("tbody tr"):
            if all(text in one.text for text in texts):
                return one
        raise NoSuchElementException(f"no row {texts!r}")

    def label(self, name, within=None):
        """The control that this label belongs to."""
        for one in self.driver.execute_script(MAY_HAVE_NAME, "label", name, within):
            if one.is_displayed() and one.text.strip() == name:
                return self.driver.find_element(By.ID, one.get_attribute("for"))
        raise NoSuchElementException(f"no label {name!r}")

    def button(self, name, within=None):
        """A button or link that has this name, for people or for screen readers."""
        for one in self.driver.execute_script(MAY_HAVE_NAME, "button, a, summary", name, within):
            if one.is_displayed() and name in (one.text.strip(), one.get_attribute("aria-label")):
                return one
        raise NoSuchElementException(f"no button {name!r}")

    # ---- doing ----

    def click(self, name, within=None):
        def action():
            self.button(name, within() if callable(within) else within).click()
            return True

        until(action, lambda: f"{name!r} is clicked in:\n{self.text()}")

    def fill(self, name, value):
        def action():
            control = self.label(name)
            if control.tag_name == "select":
                Select(control).select_by_visible_text(value)
            else:
                control.clear()
                control.send_keys(value)
            return True

        until(action, f"{name!r} is filled")

    def escape(self):
        """Presses the key as a person does: wherever one is."""
        webdriver.ActionChains(self.driver).send_keys("\ue00c").perform()

    def dialog(self):
        return self.find("dialog[open]")[-1]

    # ---- judging ----

    def errors(self):
        """What the console has of errors: scripts that failed, and what the content policy has stopped."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]

    def accessibility(self, rules=None):
        """What axe finds wrong, by all of its rules or by these."""
        # The page's own policy allows no scripts from elsewhere; the debugger may run them.
        if not self.driver.execute_script("return !!window.axe"):
            self.command("Runtime.evaluate", expression=axe_source())
        found = self.driver.execute_async_script(
            "const done = arguments[1]; axe.run(document, {runOnly: arguments[0]}).then((r) => done(r.violations))",
            {"type": "rule", "values": rules} if rules else {"type": "tag", "values": AXE_TAGS})
        return [f"{one['id']}: {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}" for one in found for node in one["nodes"]]

    def screenshot(self, path):
        self.driver.save_screenshot(path)
