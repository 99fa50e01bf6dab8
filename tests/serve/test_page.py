"""The page in a real browser: Debian's chromium through Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.serve.conftest import start_server

import tslm

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30_000

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs the browser chromium: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((server.address, "data:"))
            else trouble.append(f"asked {request.url}")
        ),
    )
    page.goto(server.address)
    page.wait_for_selector("body[data-ready=yes]")
    yield page
    # No error on the console, and nothing asked of any other machine.
    assert trouble == []
    context.close()


def words_of(page: Page, row: int = 0):
    return page.locator("#scored .row").nth(row).locator(".word")


def type_sentence(page: Page, text: str) -> None:
    """Type a sentence and wait for its words; the one before is cleared first, for it may have as many."""
    page.fill("#sentence", "")
    expect(words_of(page)).to_have_count(0, timeout=PATIENCE)
    page.fill("#sentence", text)
    expect(words_of(page)).to_have_count(len(text.split()) + 1, timeout=PATIENCE)


def colour(element) -> str:
    return element.evaluate("element => getComputedStyle(element).backgroundColor")


def test_words_are_coloured_as_one_types(page) -> None:
    type_sentence(page, "the cat sat on the zebra")
    # A word the model has never seen is hotter than one it expects, and marked.
    assert colour(words_of(page).nth(3)) != colour(words_of(page).nth(5))
    expect(words_of(page).nth(5)).to_have_class(re.compile("unknown"))
    page.fill("#sentence", "")
    expect(words_of(page)).to_have_count(0, timeout=PATIENCE)


def test_alternatives_by_mouse_and_by_keyboard(page) -> None:
    type_sentence(page, "the cat sat on the mat")
    words_of(page).nth(1).click()
    expect(page.locator("#detail h3")).to_contain_text("“cat”")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail h3")).to_contain_text("“sat”")
    other = page.locator("#detail .bars button").nth(1)
    chosen = other.text_content()
    other.click()
    expect(page.locator("#sentence")).to_have_value(
        re.sub("sat", chosen, "the cat sat on the mat") if chosen != "<eos>" else "the cat"
    )


def test_models_are_switched_and_compared(page) -> None:
    before = words_of(page).first.text_content()
    page.select_option("#model", "tslm")
    expect(page.locator("#scored .row h3").first).to_contain_text("tslm", timeout=PATIENCE)
    assert words_of(page).first.text_content() != before
    page.click("#beside summary")
    expect(page.locator("#others input[value=tslm]")).to_be_hidden()
    for other in ("kn", "lstm"):
        page.check(f"#others input[value={other}]")
    expect(page.locator("#scored .row")).to_have_count(3, timeout=PATIENCE)
    assert words_of(page, 1).first.text_content() == before


def test_begins_with_a_sentence_of_the_models_own_text(page) -> None:
    sentence = page.input_value("#sentence")
    assert re.fullmatch(r"(the|a) .* (the|a) \w+", sentence)
    assert page.locator("#scored .word.unknown").count() == 0
    assert sentence.startswith(page.input_value("#prompt"))
    page.fill("#sentence", "the cat sat")
    page.select_option("#model", "tslm")
    # What was typed stays.
    expect(page.locator("#sentence")).to_have_value("the cat sat")


def test_a_link_holds_sentence_and_models(page, server) -> None:
    page.fill("#sentence", "the cat & the <b>dog</b>\na man")
    page.click("#beside summary")
    page.check("#others input[value=tslm]")
    expect(page.locator("#scored .row")).to_have_count(2, timeout=PATIENCE)
    page.click("#share")
    expect(page.locator("#shared")).not_to_be_empty()
    link = page.url
    assert link.startswith(f"{server.address}/#text=")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready=yes]")
    expect(page.locator("#sentence")).to_have_value("the cat & the <b>dog</b>\na man")
    expect(page.locator("#prompt")).to_have_value("the cat &")
    expect(page.locator("#scored .row")).to_have_count(2, timeout=PATIENCE)
    assert page.locator("main b:text('dog')").count() == 0


def test_the_picture_is_saved_and_follows_the_theme(page) -> None:
    page.select_option("#model", "tslm")
    page.click("#explain")
    network = page.locator("#network")
    expect(network).to_be_visible(timeout=PATIENCE)
    light = network.get_attribute("src")
    page.click("#theme")
    assert network.get_attribute("src") != light
    for name, first in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.click(f"text=Save as {name}")
        assert download.value.suggested_filename == f"network.{name.lower()}"
        assert Path(download.value.path()).read_bytes().startswith(first)


def test_effects_and_network_of_this_sentence(page) -> None:
    page.select_option("#model", "tslm")
    page.fill("#sentence", "the old man slept")
    page.click("#explain")
    expect(page.locator("#effects tr")).to_have_count(5, timeout=PATIENCE)
    expect(page.locator("#contributions tr")).to_have_count(6)
    expect(page.locator("#contributions tr").nth(1).locator("th")).to_have_text("(start)")
    network = page.locator("#network")
    expect(network).to_be_visible(timeout=PATIENCE)
    assert network.evaluate("image => image.naturalWidth") > 200
    assert "r%20%3D%2012" in network.get_attribute("src")
    page.select_option("#model", "lstm")
    page.click("#explain")
    expect(page.locator("#explained .hint")).to_contain_text("leave-one-out", timeout=PATIENCE)
    expect(page.locator("#network")).to_have_count(0)
    expect(page.locator("#contributions")).to_have_count(0)


def test_a_long_sentence_has_narrow_columns_and_no_drawing(page) -> None:
    page.select_option("#model", "tslm")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.fill("#sentence", " ".join(["the old man slept on"] * 5))
    page.click("#explain")
    expect(page.locator("#effects")).to_have_class("dense", timeout=PATIENCE)
    expect(page.locator("#explained")).to_contain_text("so long a sentence")
    assert not re.search(r"-0\.0(?!\d)", page.locator("#effects").text_content() or "")
    assert page.locator("#effects").evaluate("table => table.offsetWidth <= table.parentElement.offsetWidth")


def test_generates_and_stops(page) -> None:
    page.fill("#prompt", "the cat sat")
    page.fill("#length", "10")
    page.click("#generate button[type=submit]")
    expect(page.locator("#samples li")).to_have_count(3, timeout=PATIENCE)
    page.wait_for_selector("#samples[data-done=yes]")
    expect(page.locator("#stop")).to_be_disabled()
    texts = page.locator("#samples li").all_text_contents()
    assert all(text.startswith("the cat sat") for text in texts)
    assert any(len(text.split()) > 4 for text in texts)


def test_fills_blanks_with_models_that_can(page) -> None:
    page.fill("#pattern", "the ? sat on the ?")
    page.press("#pattern", "Enter")
    expect(page.locator("#filled .fillings > div")).to_have_count(3, timeout=PATIENCE)
    page.locator("#filled .fillings > div").nth(2).locator("button").first.click()
    expect(page.locator("#sentence")).to_have_value(re.compile("^the .* sat on the"))
    # A word chosen for one blank stays, and the other blank is filled again.
    page.locator("#filled .fillings > div").nth(1).locator("button").first.click()
    expect(page.locator("#pattern")).to_have_value(re.compile(r"^the \? sat on the \w+$"))
    expect(page.locator("#filled .fillings > div")).to_have_count(1, timeout=PATIENCE)
    page.select_option("#model", "tslm")
    expect(page.locator("#cannot")).to_be_visible()
    expect(page.locator("#pattern")).to_be_disabled()


def test_text_never_becomes_part_of_the_page(page) -> None:
    evil = "<script>window.hacked=1</script> <img/src=x/onerror=window.hacked=2> <b>cat</b>"
    page.fill("#sentence", evil)
    expect(words_of(page)).to_have_count(4, timeout=PATIENCE)
    assert words_of(page).nth(0).text_content().startswith("<script>window.hacked=1</script>")
    page.fill("#prompt", evil)
    page.click("#generate button[type=submit]")
    expect(page.locator("#samples .given").first).to_have_text(evil, timeout=PATIENCE)
    page.fill("#pattern", f"{evil} ?")
    page.press("#pattern", "Enter")
    expect(page.locator("#filled .fillings")).to_be_visible(timeout=PATIENCE)
    page.select_option("#model", "tslm")
    page.click("#explain")
    expect(page.locator("#network")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main b:text('cat'), main img:not(#network)").count() == 0


def test_says_what_the_server_refuses(page) -> None:
    # A refused request is written to the console by the browser itself, so the request is answered here.
    page.route(
        "**/v1/score", lambda route: route.fulfill(status=200, content_type="application/json", body="null")
    )
    page.fill("#sentence", "the")
    expect(page.locator("#error")).to_be_visible(timeout=PATIENCE)


def test_fits_a_phone_and_both_themes(browser, server) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": 360, "height": 700}, color_scheme=scheme, is_mobile=True, has_touch=True
        )
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_selector("body[data-ready=yes]", timeout=PATIENCE)
        page.select_option("#model", "tslm")
        page.click("#explain")
        page.wait_for_selector("#network", timeout=PATIENCE)
        page.click("#beside summary")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
        colours.add(colour(page.locator("body")))
        page.click("#theme")
        colours.add(colour(page.locator("body")))
        context.close()
    assert len(colours) == 2


def test_api_page_shows_every_endpoint(page, server) -> None:
    page.goto(f"{server.address}/docs")
    expect(page.locator("section")).to_have_count(7, timeout=PATIENCE)
    expect(page.locator("main")).to_contain_text("/v1/completions")
    expect(page.locator("main")).not_to_contain_text("``")
    page.set_viewport_size({"width": 390, "height": 844})
    wide = page.evaluate("[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)")
    assert max(wide) <= 0


@pytest.mark.parametrize("kind", ["cache", "interpolation"])
def test_a_cached_model_shows_what_its_cache_changes(browser, runs, tmp_path, kind) -> None:
    tslm.with_cache(runs["tslm"], tmp_path / "cache", size=50)
    if kind == "interpolation":
        tslm.mix([runs["kn"], tmp_path / "cache"], tmp_path / kind)
    running = start_server({**runs, "kn": tmp_path / kind})
    try:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(running.address)
        page.wait_for_selector("body[data-ready=yes]")
        page.fill("#sentence", "the cat sat\nthe cat sat")
        expect(words_of(page)).to_have_count(8, timeout=PATIENCE)
        for place in range(8):
            expect(words_of(page).nth(place)).to_have_text(re.compile(r"\d\.\d → \d+\.\d bits"))
        expect(page.locator("#detail")).to_contain_text("without the cache")
        page.close()
    finally:
        running.process.terminate()
        running.process.communicate(timeout=20)
