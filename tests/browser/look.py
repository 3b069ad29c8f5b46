#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the pages of `inspect --html` and `plan --html` with a real browser: look.py TOOL [FOLDER] makes checkpoints,
opens their pages in headless chromium and clicks through them; pictures of them are left in FOLDER. Ends with one line
"N passed, N failed". Needs Debian's chromium, chromium-driver and python3-selenium (tools/setup BUILD browser)."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

TOOL = sys.argv[1]
DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
EVIL = "</script><b onclick=alert(1)>&amp;\u202e\n"
MANY = 5000
MOST_ELEMENTS = 600  # of a page with 5,000 tensors: rows that can't be seen must not exist
LONGEST = 20  # seconds until the page has done what was asked of it
LAYOUT = "mesh dp=2 tp=4; *norm* replicate; *experts* shard(0)@dp shard(2)@tp; * shard(0)@dp shard(1)@tp"

RECIPE = """model.layers.3.{*x} -> drop
model.layers.{i}.attn.wq.weight[a b] -> wq[b (i a)] for i in 0..3
model.layers.{i}.norm.weight -> model.layers.{i}.norm.weight times 2
{*x} -> {*x}
"""


def safetensors(path, tensors):
    header, at = {}, 0
    for name, shape in tensors:
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def tool(*args):
    subprocess.run([TOOL, *map(str, args)], check=True)


def make_pages(folder):
    layers = [
        (f"model.layers.{i}.{name}", shape)
        for i in range(4)
        for name, shape in (("attn.wq.weight", [64, 96]), ("mlp.experts", [4, 12, 32]), ("norm.weight", [64]))
    ]
    safetensors(folder / "small.safetensors", [*layers, (EVIL, [8, 8])])
    safetensors(folder / "many.safetensors", [(f"model.layers.{i // 10}.part{i % 10}.weight", [8, 8]) for i in range(MANY)])
    for name in ("small", "many"):
        tool("convert", "-q", folder / f"{name}.safetensors", folder / name, "--layout", LAYOUT)
        tool("inspect", folder / name, "--html", folder / f"{name}.html")
    tool("plan", folder / "small", "--layout", "mesh tp=3; *norm* replicate; * shard(1)@tp", "--html", folder / "plan.html")
    safetensors(folder / "wide.safetensors", [("wide", [64, 64])])
    tool("convert", "-q", folder / "wide.safetensors", folder / "wide", "--layout", "mesh tp=64; * shard(0)@tp")
    tool("plan", folder / "wide", "--layout", "mesh tp=16; * shard(1)@tp", "--html", folder / "wide.html")
    tool("inspect", DATA / "golden" / "training.pt", "--html", folder / "objects.html")
    tool("plan", folder / "many", "--layout", "mesh tp=3; * shard(1)@tp", "--html", folder / "many_plan.html")
    tool("plan", folder / "small.safetensors", "--layout", "mesh tp=2; * shard(0)@tp", "--html", folder / "files.html")
    (folder / "stack.recipe").write_text(RECIPE)
    tool("plan", folder / "small", "--recipe", folder / "stack.recipe", "--layout", "mesh tp=2; *norm* replicate; * shard(1)@tp",
         "--html", folder / "made.html")


class Browser:
    """One window, and what was written to its console."""

    def __init__(self, folder, pictures):
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1360,900"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.folder, self.pictures = folder, pictures

    def open(self, name, fragment=""):
        self.driver.get("about:blank")
        self.driver.get((self.folder / name).as_uri() + fragment)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def all_of(self, selector):
        """All, once there are any: what a click opens is made in an event of its own."""
        return WebDriverWait(self.driver, LONGEST).until(lambda _: self.all(selector))

    def script(self, code):
        return self.driver.execute_script("return " + code)

    def keys(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def search(self, words):
        box = self.one("#search")
        box.clear()
        box.send_keys(words)

    def dark(self, on):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]}
        )

    def back(self):
        return self.script("getComputedStyle(document.body).backgroundColor")

    def console(self):
        return [line["message"] for line in self.driver.get_log("browser")]

    def shoot(self, name):
        if self.pictures:
            self.driver.save_screenshot(str(self.pictures / f"{name}.png"))


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


def the_overview_shows_the_bytes_of_each_file(b):
    b.open("small.html")
    equal(len(b.all(".bars .bar")), 1 + 8)
    assert "8 files" in b.text("#summary"), b.text("#summary")
    b.shoot("overview_light")


def the_overview_has_parameters_dtypes_the_largest_and_a_tree(b):
    b.open("many.html")
    equal([e.text for e in b.all(".facts dd")], ["320.0K", "1.2 MiB", "5,000", "40,000", "8", "0"])
    equal(b.text(".bars .who"), "float32")
    equal(len(b.all("table.plain .link")), 8)
    equal([e.text for e in b.all(".tree summary code")], ["model.layers", "[0-499]"])
    b.all(".tree summary")[1].click()
    b.all_of(".tree .leaf .link")[3].click()
    equal(b.text("h2"), "model.layers.0.part3.weight")


def objects_are_shown(b):
    b.open("objects.html")
    equal(len(b.all(".value")), 8)
    assert "(0.9, 0.999)" in [e.text for e in b.all(".value")]
    b.shoot("objects")


def the_list_has_layers_by_their_numbers(b):
    b.open("many.html")
    b.search("part0")
    equal([e.text for e in b.all(".row .name")[1:4]], [f"model.layers.{i}.part0.weight" for i in (1, 2, 3)])


def search_finds_by_name_and_shape(b):
    b.open("small.html")
    b.search("layers.2 wq")
    equal([e.text for e in b.all(".row .name")], ["model.layers.2.attn.wq.weight"])
    b.search("[4, 12, 32]")
    equal(b.text("#found"), "4 of 13 tensors")
    b.search("nothing like this")
    equal(len(b.all(".row")), 0)


def a_tensor_opens_and_shows_its_tiles(b):
    b.open("small.html")
    b.search("wq")
    b.all(".row")[0].click()
    equal(b.text("h2"), "model.layers.0.attn.wq.weight")
    equal(len(b.all("svg .tile")), 8)
    b.all("svg .tile")[5].click()
    equal(b.text(".status"), "rank 5 (__5_0.distcp): [32:64, 24:48], 3.0 KiB")
    b.shoot("tensor_light")


def two_axes_are_chosen_and_the_rest_is_at_an_index(b):
    b.open("small.html", "#model.layers.0.mlp.experts")
    equal([b.one("#axis-0").get_property("value"), b.one("#axis-1").get_property("value")], ["0", "2"])
    equal(len(b.all("svg .tile")), 8)
    b.one("#axis-0").send_keys("axis 1")
    equal(b.script("document.querySelector('#axis-0').value"), "1")
    equal(len(b.all("svg .tile")), 4)
    titles = "[...document.querySelectorAll('svg .tile title')].map(e => e.textContent.split(' ')[1])"
    equal(b.script(titles), ["0", "1", "2", "3"])
    b.one(".axes input").send_keys(Keys.CONTROL + "a")
    b.keys("3", Keys.ENTER)
    equal(b.script(titles), ["4", "5", "6", "7"])
    b.shoot("axes")


def a_plan_shows_tiles_before_and_after_and_what_moves(b):
    b.open("plan.html")
    equal(len(b.all(".bars .bar")), 1 + 8 + 8)
    b.shoot("plan_overview")
    b.search("wq")
    b.all(".row")[0].click()
    equal(len(b.all("svg .tile")), 8 + 3)
    equal(len(b.all("svg .move")), 12)
    equal(len(b.all("svg .move.stay")), 3)
    equal(len(b.all("tbody tr")), 12)
    b.shoot("plan_tensor")
    b.all("svg .tile")[9].click()
    equal(len(b.all("svg .move")), 4)
    equal(b.text(".status"), "rank 1: [0:64, 32:64], 8.0 KiB")
    b.shoot("plan_chosen")


INSIDE = """[...document.querySelectorAll('svg .move')].every(e => {
    const box = e.getBBox(), all = document.querySelector('svg.picture').viewBox.baseVal;
    return box.x >= 0 && box.y >= 0 && box.x + box.width <= all.width && box.y + box.height <= all.height;
})"""


def curves_stay_inside_the_picture(b):
    for page, name in (("plan.html", "#model.layers.0.attn.wq.weight"), ("wide.html", "#wide")):
        b.open(page, name)
        assert len(b.all("svg .move")) > 0, page
        equal(b.script(INSIDE), True)


def more_moves_than_can_be_seen_are_drawn_in_part(b):
    b.open("wide.html", "#wide")
    equal(b.text("h3"), "Pieces (1,024)")
    lines = len(b.all("svg .move"))
    assert 80 <= lines <= 160, lines
    assert "Only some of the moves are drawn" in b.text("#view"), b.text("#view")
    b.shoot("plan_wide")


def pieces_add_up_to_the_tensor(b):
    b.open("plan.html", "#model.layers.1.mlp.experts")
    total = b.script("movesOf({ before: { tiles: tilesOf(opened.before, 3) }, after: { tiles: tilesOf(opened.after, 3) } })"
                     ".reduce((s, m) => s + count(m.box), 0)")
    equal(total, 4 * 12 * 32)


def files_without_ranks_are_shown_as_files(b):
    b.open("files.html", "#model.layers.0.attn.wq.weight")
    equal(len(b.all("svg .tile")), 1 + 2)
    equal(b.text(".legend li"), "small.safetensors")
    equal(len(b.all("svg .move.stay")), 0)


def a_tensor_made_of_others_shows_them_and_what_ranks_read(b):
    b.open("made.html", "#wq")
    equal(b.text(".meta"), "float32 [96, 192], 72.0 KiB, 3 parts")
    equal([e.text for e in b.all("#view h3")], ["Made of 3 tensors", "Tiles", "Read by each rank"])
    assert b.text(".made .note").endswith("stack.recipe, reordered"), b.text(".made .note")
    assert "by the rule in line 2 of " in b.text(".made .note"), b.text(".made .note")
    equal([e.text for e in b.all(".made tbody tr")], [f"model.layers.{i}.attn.wq.weight float32 [64, 96]" for i in range(3)])
    equal([e.text for e in b.all(".reads tbody tr")], ["rank 0 36.0 KiB 36.0 KiB 2", "rank 1 36.0 KiB 36.0 KiB 2"])
    equal(len(b.all("svg .tile")), 2)
    equal(len(b.all("svg .move")), 0)
    b.all("svg .tile")[1].click()
    equal(b.text(".status"), "rank 1: [0:96, 96:192], 36.0 KiB")
    b.shoot("made_light")
    b.dark(True)
    b.shoot("made_dark")
    b.dark(False)


def a_tensor_that_a_recipe_only_copies_shows_its_moves_too(b):
    b.open("made.html", "#model.layers.0.mlp.experts")
    equal(b.text(".made h3"), "Made of 1 tensor")
    equal(len(b.all("svg .tile")), 4 + 2)  # of 8 before, those at index 0 of axis 0
    assert len(b.all("svg .move")) > 0
    b.shoot("made_copied")
    b.open("made.html", "#model.layers.0.norm.weight")
    equal(len(b.all("svg .tile")), 1)
    assert b.text(".made .note").endswith(", scaled"), b.text(".made .note")


def a_source_is_found_and_dropped_ones_are_listed(b):
    b.open("made.html")
    equal(b.text("#view").split("Dropped by the recipe")[1].split("\n")[2], "model.layers.3.attn.wq.weight line 1")
    b.shoot("made_overview")
    b.search("layers.2.attn.wq")
    equal([e.text for e in b.all(".row .name")], ["wq"])


def names_are_never_markup(b):
    for page in ("small.html", "plan.html", "made.html"):
        b.open(page)
        b.search("script")
        b.all(".row")[0].click()
        equal(b.script("document.querySelector('h2').textContent"), EVIL.replace("\n", "\\x0a").replace("\u202e", "\\u202e"))
        equal(len(b.all("b")), 0)
        equal(b.script("document.scripts.length"), 2)


def the_system_s_theme_is_followed_and_the_switch_overrides_it(b):
    b.dark(False)
    b.open("small.html")
    light = b.back()
    b.dark(True)
    dark = b.back()
    assert light != dark, light
    b.one("#theme").click()
    equal(b.back(), light)
    b.one("#theme").click()
    b.dark(False)
    equal(b.back(), dark)
    b.all(".row")[0].click()
    b.shoot("tensor_dark")
    b.open("plan.html", "#model.layers.0.attn.wq.weight")
    equal(b.back(), dark)
    b.shoot("plan_dark")
    b.one("#theme").click()
    equal(b.text("#theme"), "theme: auto")


def the_keyboard_is_enough(b):
    b.open("plan.html")
    b.keys("/")
    b.keys("wq")
    b.keys(Keys.ARROW_DOWN)
    b.keys(Keys.ARROW_DOWN, Keys.ENTER)
    equal(b.text("h2"), "model.layers.1.attn.wq.weight")
    b.script("document.querySelector('svg.picture').focus()")
    b.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert b.text(".status").startswith("rank 1 "), b.text(".status")
    b.keys(Keys.ESCAPE)
    equal(b.text("h2"), "Overview")


def thousands_of_tensors_take_few_elements(b):
    for page in ("many.html", "many_plan.html"):
        b.open(page)
        equal(b.text("#found"), "5,000 tensors")
        least = b.script("document.querySelectorAll('*').length")
        assert least < MOST_ELEMENTS, least
        b.one("#list").send_keys(Keys.END)
        b.keys(Keys.ENTER)
        equal(b.text("h2"), f"model.layers.{(MANY - 1) // 10}.part9.weight")
        assert b.script("document.querySelectorAll('*').length") < MOST_ELEMENTS
        b.search("layers.321.")
        equal(b.text("#found"), "10 of 5,000 tensors")
    equal(b.script("data.tilings.length"), 2)
    b.shoot("many")


def a_phone_shows_text_that_can_be_read(b):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    b.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    for page, name in (("plan.html", "#model.layers.0.attn.wq.weight"), ("small.html", "#model.layers.0.attn.wq.weight"), ("plan.html", "")):
        b.open(page, name)
        wide = b.script("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        least = b.script("Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height), 99)")
        b.shoot("phone_" + page.split(".")[0] + ("_tensor" if name else ""))
        equal(wide, 0)
        assert least >= 11, least
        equal(b.script(INSIDE), True)
    b.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def a_narrow_window_shows_it_too(b):
    b.driver.set_window_size(520, 900)
    b.open("plan.html", "#model.layers.0.attn.wq.weight")
    wide = b.script("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    b.shoot("narrow")
    b.driver.set_window_size(1360, 900)
    equal(wide, 0)


TESTS = [
    the_overview_shows_the_bytes_of_each_file,
    the_overview_has_parameters_dtypes_the_largest_and_a_tree,
    objects_are_shown,
    the_list_has_layers_by_their_numbers,
    search_finds_by_name_and_shape,
    a_tensor_opens_and_shows_its_tiles,
    two_axes_are_chosen_and_the_rest_is_at_an_index,
    a_plan_shows_tiles_before_and_after_and_what_moves,
    curves_stay_inside_the_picture,
    more_moves_than_can_be_seen_are_drawn_in_part,
    pieces_add_up_to_the_tensor,
    files_without_ranks_are_shown_as_files,
    a_tensor_made_of_others_shows_them_and_what_ranks_read,
    a_tensor_that_a_recipe_only_copies_shows_its_moves_too,
    a_source_is_found_and_dropped_ones_are_listed,
    names_are_never_markup,
    the_system_s_theme_is_followed_and_the_switch_overrides_it,
    the_keyboard_is_enough,
    thousands_of_tensors_take_few_elements,
    a_phone_shows_text_that_can_be_read,
    a_narrow_window_shows_it_too,
]


def main():
    pictures = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    failed = 0
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_pages(folder)
        b = Browser(folder, pictures)
        try:
            for test in TESTS:
                try:
                    test(b)
                    equal(b.console(), [])
                    print("[       OK ]", test.__name__)
                except Exception:  # whatever the driver throws: the other tests go on
                    traceback.print_exc()
                    print("[  FAILED  ]", test.__name__)
                    failed += 1
        finally:
            b.driver.quit()
    print(f"{len(TESTS) - failed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
