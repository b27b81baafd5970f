"""The steps of a Containerfile, run in folders with chroot in place of a container engine. Each `FROM` of the base image is a copy of a
Debian that debootstrap makes; namespaces of the kernel give the service a network, a process 1 and a read-only root of its own."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

from support import BUILD, ROOT, until

BASES = {"debian:12-slim": "bookworm"}
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions(path):
    """(name, text) of each instruction."""
    with open(path, encoding="utf-8") as file:
        lines = "".join(line for line in file if not line.startswith("#"))
    for line in lines.replace("\\\n", "").splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            if name not in KNOWN:
                raise AssertionError(f"{path}: the test does not know {name}")
            yield name, text.strip()


def base(image):
    """The folder of a base image; it is kept in the build folder."""
    path = os.path.join(BUILD, "image", image.replace(":", "-"))
    if not os.path.exists(path):
        shutil.rmtree(path + ".new", ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", BASES[image], path + ".new"], check=True, stdout=subprocess.DEVNULL)
        os.rename(path + ".new", path)
    return path


def context():
    """The files that a build sees: those of the tree that .dockerignore does not name."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    with open(os.path.join(ROOT, ".dockerignore"), encoding="utf-8") as file:
        ignored = [line.strip() for line in file if line.strip()]
    for path in done.stdout.splitlines():
        if os.path.exists(os.path.join(ROOT, path)) and not any(path == name or path.startswith(name + "/") for name in ignored):
            yield path


class Stage:
    def __init__(self, folder, image):
        self.root = folder
        self.settings = {"WORKDIR": "/", "USER": "0:0"}
        subprocess.run(["cp", "-a", base(image), folder], check=True)
        shutil.copy("/etc/resolv.conf", os.path.join(folder, "etc/resolv.conf"))

    def at(self, path):
        return self.root + os.path.normpath(os.path.join(self.settings["WORKDIR"], path))

    def run(self, *words):
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"']
        done = subprocess.run([*command, self.root, *words], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def copy(self, text, stages):
        words = text.split()
        if words[0].startswith("--from="):
            source, target = stages[words[0][7:]].root + words[1], self.at(words[2])
            subprocess.run(["cp", "-a", source.rstrip("/") + "/.", target], check=True)
            return
        source, target = words
        for path in context():
            if source in (".", path):
                place = os.path.join(self.at(target), path) if source == "." else self.at(target)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(os.path.join(ROOT, path), place)

    def step(self, name, text, stages):
        if name == "RUN":
            self.run("sh", "-c", f"cd {shlex.quote(self.settings['WORKDIR'])} && {text}")
        elif name == "COPY":
            self.copy(text, stages)
        else:
            self.settings[name] = text
            if name == "WORKDIR":
                os.makedirs(self.root + text, exist_ok=True)


def build(path, folder):
    """Runs all steps; returns the last stage."""
    stages = {}
    for name, text in instructions(path):
        if name == "FROM":
            image, _, label = text.partition(" AS ")
            stage = Stage(os.path.join(folder, f"stage-{len(stages)}"), image)
            stages[label or "last"] = stage
        else:
            stage.step(name, text, stages)
    return stage


# A program that goes on as a shell. SIOCSIFFLAGS, IFF_UP and IFF_RUNNING.
LOOPBACK_UP = """import fcntl, os, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
os.execv("/bin/sh", ["sh", "-c", *sys.argv[1:]])
"""


class Container:
    """with Container(stage, {"/etc/weir": folder}) as c: c.ask("curl", …). The root is read-only but for the image's volumes, which are a
    tmpfs; the process has no capabilities. folders: those of the host that are mounted."""

    SCRIPT = """
        set -e
        mount --bind "$0" "$0" && mount -t proc proc "$0/proc"
        mount -o remount,ro,bind "$0"
        for folder in $VOLUMES; do mount -t tmpfs -o "uid=${OWNER%:*},gid=${OWNER#*:},mode=0750" volume "$0$folder"; done
        for pair in $FOLDERS; do mount --bind "${pair#*=}" "$0${pair%%=*}"; done
        exec chroot "$0" setpriv --reuid "${OWNER%:*}" --regid "${OWNER#*:}" --clear-groups --no-new-privs --bounding-set=-all \\
          --inh-caps=-all env -i "PATH=$PATH" "$@"
    """

    def __init__(self, stage, folders, *command, tmpfs=()):
        self.stage, self.folders, self.tmpfs = stage, folders, tmpfs
        self.command = json.loads(stage.settings["ENTRYPOINT"]) + (list(command) or json.loads(stage.settings["CMD"]))

    def __enter__(self):
        settings = self.stage.settings
        environment = {**ENVIRONMENT, "OWNER": settings["USER"], "VOLUMES": " ".join([settings["VOLUME"], *self.tmpfs]),
                       "FOLDERS": " ".join(f"{inside}={outside}" for inside, outside in self.folders.items())}
        words = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "/usr/bin/python3", "-c",
                 LOOPBACK_UP, self.SCRIPT, self.stage.root, *self.command]
        self.log = open(self.stage.root + ".log", "w+b")  # closed in __exit__
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment)
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            # unshare's --kill-child ends with the first change of the user.
            with contextlib.suppress(OSError):
                os.kill(self.first() or self.process.pid, signal.SIGKILL)
        self.process.wait()
        if kind:
            print(self.output())
        self.log.close()

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def first(self):
        """The process 1 of the container, as the host numbers it."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            found = file.read().split()
        return int(found[0]) if found else None

    def runs(self):
        if self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.output()}")
        pid = self.first()
        if pid is None:
            return False
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read().strip() == "weir"
        return False

    def wait(self):
        until(lambda: self.runs() and self.healthy(), lambda: f"the container is healthy: {self.output()}", pause=0.1)

    def healthy(self):
        """The health check of the image, in the container and as its user."""
        check = json.loads(re.search(r" CMD (\[.*\])", " " + self.stage.settings["HEALTHCHECK"])[1])
        return self.inside(*check).returncode == 0

    def inside(self, *words):
        uid, gid = self.stage.settings["USER"].split(":")
        enter = ["nsenter", "-t", str(self.first()), "--mount", "--pid", "--net", "--root", "--wd", "setpriv", "--reuid", uid, "--regid", gid,
                 "--clear-groups", "--no-new-privs"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, env=ENVIRONMENT, check=False)

    def ask(self, *words):
        """A program of the host in the network of the container."""
        enter = ["nsenter", "-t", str(self.first()), "--net"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, check=False).stdout

    def stop(self, number):
        os.kill(self.first(), number)
        return self.process.wait(60)
