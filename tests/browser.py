"""A headless Chromium, driven over its debugging pipe with the standard library alone."""

import itertools
import json
import os
import shutil
import subprocess

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]


def find_chromium():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


class Browser:
    """One tab. `send` is a command of the DevTools protocol; `events` holds what it told since."""

    def __init__(self, profile):
        theirs_in, self.out = os.pipe()
        self.inbox, theirs_out = os.pipe()
        # The pipe is expected at the descriptors 3 and 4, which a shell can arrange.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], None
        pages = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in pages if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)  # no window has the focus

    def send(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _receive(self):
        while b"\0" not in self.rest:
            data = os.read(self.inbox, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(self, url):
        self.events.clear()
        self.send("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, script):
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def press(self, key):
        code = {"Tab": 9, "End": 35, "Home": 36}.get(key) or {
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def resize(self, width, height=800):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def hold(self, touch):
        """A phone in the hand, with fingers for a pointer; or a mouse again."""
        size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": touch}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)

    def prefer(self, scheme):
        """light or dark"""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=10)
        os.close(self.out)
        os.close(self.inbox)
