"""Take a picture of a page: `python docs/tools/screenshot.py URL FILE.png [--wait-for TEXT]`.

Needs Chromium (found on the PATH, or named with --chromium) and the development tools.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Error, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_SECONDS = 30.0


def wait_for(page: Page, text: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until a text shows and every chart on the page is drawn."""
    page.get_by_text(text).first.wait_for(timeout=seconds * 1000)
    page.wait_for_function(
        """() => [...document.querySelectorAll('[data-testid="stPlotlyChart"]')]
                   .every(chart => chart.querySelector('.main-svg'))""",
        timeout=seconds * 1000,
    )
    page.wait_for_timeout(1500)  # fonts, and the last redraw


def shoot(
    url: str,
    file: Path,
    *,
    chromium: str,
    text: str,
    size: tuple[int, int],
    dark: bool = False,
    full: bool = False,
    scale: float = 1.0,
) -> None:
    """Open `url`, wait for `text`, write a PNG.

    Args:
        size: Width and height of the window; `full` takes the whole page however long.
        scale: Device pixels per CSS pixel.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        try:
            page = browser.new_page(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if dark else "light",
                device_scale_factor=scale,
            )
            page.goto(url)
            wait_for(page, text)
            if full:
                main = page.locator('[data-testid="stMainBlockContainer"]')
                box = main.bounding_box() if main.count() else None
                if box is not None:
                    height = max(size[1], int(box["y"] + box["height"]) + 20)
                    page.set_viewport_size({"width": size[0], "height": height})
                    wait_for(page, text)
            page.screenshot(path=str(file), full_page=full)
        finally:
            browser.close()


def main() -> int:
    """Read the arguments, take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--wait-for", default="Acceptance per class", metavar="TEXT")
    parser.add_argument("--size", default="1440x900", metavar="WxH")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--full", action="store_true", help="the whole page, however long")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, BROWSERS)), None))
    asked = parser.parse_args()
    if asked.chromium is None:
        sys.stderr.write("Chromium is not installed; install it or name it with --chromium\n")
        return 1
    width, _, height = asked.size.partition("x")
    try:
        shoot(
            asked.url,
            asked.file,
            chromium=asked.chromium,
            text=asked.wait_for,
            size=(int(width), int(height)),
            dark=asked.dark,
            full=asked.full,
            scale=asked.scale,
        )
    except (Error, ValueError) as error:
        sys.stderr.write(f"no picture of {asked.url}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
