"""Makes the pictures of README from real runs, beside this file:  python .github/pictures.py

story.svg    what `minidecode generate` writes
trace.svg    the first lines of `minidecode trace`, in the colours of a terminal
page.png     the page of `minidecode trace --html`, one round opened; needs a Chromium
"""

import base64
import html
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the tests' own driver of a browser
PROMPT, LINES = "Once upon a time", 6
STORY = ["generate", PROMPT, "--seed", "2", "--echo"]
TRACE = ["trace", PROMPT, "--draft", "storyteller-1m", "--verify", "token", "--seed", "6"]
WIDTH, LINE, LEFT, TOP, LETTER = 92, 19, 16, 30, 8.4  # letters a line; then pixels
LOOKS = {  # of the codes for colours that a terminal knows
    "1": "font-weight:bold",
    "2": "opacity:0.6",
    "4": "text-decoration:underline",
    "9": "text-decoration:line-through",
    "31": "fill:#ff7b72",
    "32": "fill:#7ee787",
    "33": "fill:#e3b341",
    "34": "fill:#79c0ff",
    "35": "fill:#d2a8ff",
    "36": "fill:#56d4dd",
    "90": "fill:#8b949e",
}


def run(*arguments):
    command = [sys.executable, "-m", "minidecode", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.splitlines()[-1]
        sys.exit(f"minidecode must be installed, and it failed: {reason}")
    return done.stdout


def spans(line):
    """A line with codes for colours as the insides of an SVG text."""
    style, found = [], []
    for codes, words in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]+)?", line):
        if codes:
            style = [] if codes == "0" else [LOOKS.get(code, "") for code in codes.split(";")]
        if words:
            found.append(
                f'<tspan style="{";".join(filter(None, style))}">{html.escape(words)}</tspan>'
            )
    return "".join(found)


def terminal(arguments, lines):
    """An SVG of a terminal in which minidecode with these arguments printed `lines`."""
    command = " ".join(f'"{a}"' if " " in a else a for a in ("minidecode", *arguments))
    rows = [f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m", "", *lines]
    height = TOP + LINE * len(rows)
    texts = "\n".join(
        f'<text x="{LEFT}" y="{TOP + LINE * i}" xml:space="preserve">{spans(row)}</text>'
        for i, row in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{round(WIDTH * LETTER) + 2 * LEFT}" '
        f'height="{height}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" '
        f'fill="#e6edf3">\n<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f"{texts}\n</svg>\n"
    )


def story():
    parts = run(*STORY).splitlines()
    return terminal(STORY, [line for part in parts for line in textwrap.wrap(part, WIDTH) or [""]])


def trace():
    return terminal(TRACE, run(*TRACE, "--color", "always").splitlines()[:LINES])


def page():
    """A screenshot, or None without a browser."""
    from browser import Browser, find_chromium

    if find_chromium() is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        run(*TRACE, "--max-new-tokens", "60", "--html", str(file))
        browser = Browser(folder)
        try:
            size = {"width": 1200, "height": 860, "deviceScaleFactor": 1, "mobile": False}
            browser.send("Emulation.setDeviceMetricsOverride", **size)
            browser.open(file.as_uri())
            browser.run("document.querySelector('#text .token.rejected').click()")
            shot = browser.send("Page.captureScreenshot", format="png")["data"]
        finally:
            browser.close()
    return base64.b64decode(shot)


def main():
    (HERE / "story.svg").write_text(story(), encoding="utf-8")
    (HERE / "trace.svg").write_text(trace(), encoding="utf-8")
    shot = page()
    if shot is None:
        sys.exit("page.png is left as it was: no chromium was found")
    (HERE / "page.png").write_bytes(shot)


if __name__ == "__main__":
    main()
