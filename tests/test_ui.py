"""The page in a real headless Chromium: what a newcomer does with it, what hostile text does to it, who can use it."""

import itertools
import shutil
import time

import pytest
from scripted import Upstream, ask, body, compacted_chat, config_for, http, lantern_headers, serving, wait_for

selenium = pytest.importorskip("selenium", reason="selenium is not installed: pip install -e '.[dev]'")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
browser_only = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium with chromedriver here: apt-get install chromium chromium-driver"
)
EVIL = (
    '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\'"><svg onload=window.hit=1>'
    "</textarea><a href=javascript:window.hit=1>x</a> \u202e {{7*7}} port-6666"
)
FACTS = [f"Fact {n}: service s{n} listens on port {4000 + n}, owner team-{n}, ticket OPS-{900 + n}." for n in range(10)]
PAGES = ["", "sessions", "search?q=port", "marked", "try"]


def converse(url: str, session: str, facts: list[str], question: str) -> dict[str, str]:
    last = compacted_chat(url, session, facts, question)
    settle = f"{url}/lantern/api/sessions/{last['session']}/timeline"
    wait_for(lambda: http.get(settle).json()["passages"] >= 2 * len(facts))  # they are cut after the answer
    return last


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("ui"))) as served:
        yield served


@pytest.fixture(scope="module")
def talk(url):
    return converse(url, "talk-1", FACTS, "On which port does service s3 listen?")


@pytest.fixture(scope="module")
def hostile(url):
    """A session in which every field that a client or a model fills is hostile."""
    facts = [f"{EVIL} number {n} ticket OPS-{n}" for n in range(10)]
    request = {"model": EVIL, "messages": [{"role": "user", "content": f"{EVIL} again"}]}
    ask(url, request, x_lantern_session=f"evil{EVIL[:40]}")
    return converse(url, "<b onmouseover=window.hit=1>evil</b>", facts, f"{EVIL} Which ticket, OPS-3?")


@pytest.fixture(scope="module")
def chrome():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def show(chrome, url: str, path: str = "") -> None:
    chrome.get("about:blank")
    chrome.get_log("browser")
    chrome.get(f"{url}/lantern/ui#/{path}")
    settled(chrome)


def settled(chrome) -> None:
    WebDriverWait(chrome, 20).until(
        lambda d: d.execute_script("return document.querySelector('main h1') && !document.querySelector('[aria-busy]')")
    )


def until(chrome, script: str) -> object:
    return WebDriverWait(chrome, 20).until(lambda d: d.execute_script(f"return {script}"))


def complaints(chrome) -> list[str]:
    return [line["message"] for line in chrome.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]


def test_the_page_is_served_with_a_policy_that_runs_nothing_else(url):
    page = http.get(f"{url}/lantern/ui")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http://" not in page.text
    assert "https://" not in page.text
    script = http.get(f"{url}/lantern/ui/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    again = http.get(f"{url}/lantern/ui/app.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("nothing.js", "..%2fapi.py", "%2e%2e/api.py", "__init__.py"):
        assert http.get(f"{url}/lantern/ui/{name}").status_code == 404


def test_the_page_asks_for_nothing_from_elsewhere_and_makes_no_markup_of_text():
    from importlib.resources import files

    for file in files("lantern_proxy.admin").joinpath("ui").iterdir():
        text = file.read_text("utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, f"{file.name} uses {word}"
        assert "//cdn" not in text
        assert text.count("://") == text.count("http://www.w3.org"), file.name


@browser_only
@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_without_a_complaint(chrome, url, talk, path):
    show(chrome, url, path)
    assert complaints(chrome) == []
    assert chrome.title.endswith(" Lantern")


@browser_only
def test_a_newcomer_sees_the_compaction_survived_and_why(chrome, url, talk):
    show(chrome, url, "sessions")
    chrome.find_element(By.CSS_SELECTOR, f'a[href$="{talk["session"]}"]').click()
    until(chrome, "document.querySelectorAll('.chart .fall').length")
    assert chrome.find_elements(By.CSS_SELECTOR, ".chart .arc")
    rows = chrome.find_elements(By.CSS_SELECTOR, "section[aria-labelledby=events] tbody tr")
    assert "summarised" in rows[0].text
    assert f"{talk['restored']} passage" in rows[0].text
    rows[0].find_element(By.TAG_NAME, "a").click()
    until(chrome, "document.querySelectorAll('.passage').length")
    assert chrome.find_element(By.TAG_NAME, "h1").text == "Why this came back"
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".panel > .cardlist .passage")) == int(talk["restored"])
    assert chrome.find_elements(By.CSS_SELECTOR, ".columns a .meter")


@browser_only
def test_what_lost_is_shown_with_its_reason(chrome, url, talk):
    first = http.get(f"{url}/lantern/api/requests/{talk['request']}").json()["passed"][0]
    id_ = first["passage"]["id"]
    show(chrome, url, f"requests/{talk['request']}")
    folded = until(chrome, f"document.getElementById('left-loss-{id_}').closest('details')")
    assert not folded.get_attribute("open")
    link = chrome.find_element(By.CSS_SELECTOR, f".columns a[data-passage='{id_}'].leftout")
    chrome.execute_script("arguments[0].closest('li').hidden = false; arguments[0].click()", link)
    assert folded.get_attribute("open")
    assert chrome.execute_script("return document.activeElement.closest('.passage').id") == f"left-loss-{id_}"
    assert first["why"] in folded.text


@browser_only
def test_a_newcomer_marks_a_passage_as_wrong_and_takes_it_back(chrome, url, talk):
    show(chrome, url, f"requests/{talk['request']}")
    button = until(chrome, "document.querySelector('.passage [data-name=wrong]')")
    id_ = chrome.execute_script("return arguments[0].closest('.passage').id.split('-')[1]", button)
    button.click()
    until(chrome, f"document.querySelector('#passage-{id_}.out [data-name=wrong][aria-pressed=true]')")
    assert http.get(f"{url}/lantern/api/passages/{id_}").json()["verdict"] == "wrong"
    assert chrome.execute_script("return document.activeElement.dataset.name") == "wrong"
    assert "not restored again" in chrome.find_element(By.ID, "status").get_attribute("textContent")
    show(chrome, url, "marked")
    until(chrome, f"document.querySelector('#passage-{id_}')")
    chrome.find_element(By.CSS_SELECTOR, f"#passage-{id_} [data-name=wrong]").click()
    until(chrome, f"!document.querySelector('#passage-{id_}.out')")
    assert http.get(f"{url}/lantern/api/passages/{id_}").json()["verdict"] == ""


@browser_only
def test_a_passage_is_corrected_in_a_dialog(chrome, url, talk):
    show(chrome, url, "search?q=OPS-905")
    until(chrome, "document.querySelector('.passage [data-name=edit]')").click()
    field = until(chrome, "document.querySelector('dialog[open] textarea')")
    field.clear()
    field.send_keys("Ticket OPS-905 is closed.")
    chrome.find_element(By.CSS_SELECTOR, "dialog [type=submit]").click()
    until(chrome, "!document.querySelector('dialog')")
    until(chrome, "document.querySelector('.passage .text')?.textContent === 'Ticket OPS-905 is closed.'")
    hits = http.get(f"{url}/lantern/api/search", params={"q": "OPS-905 closed"}).json()
    assert hits[0]["passage"]["text"] == "Ticket OPS-905 is closed."


@browser_only
def test_nothing_is_removed_before_it_is_confirmed(chrome, url):
    mine = converse(url, "gone-1", FACTS[:4], "What was said?")
    show(chrome, url, f"sessions/{mine['session']}")
    buttons = {b.text: b for b in chrome.find_elements(By.CSS_SELECTOR, ".head button")}
    buttons["Prune …"].click()
    chrome.find_element(By.CSS_SELECTOR, "dialog [type=submit]").click()
    assert "would remove" in str(until(chrome, "document.querySelector('dialog .preview:not([hidden])')?.textContent"))
    chrome.find_element(By.CSS_SELECTOR, "dialog").send_keys(Keys.ESCAPE)
    until(chrome, "!document.querySelector('dialog')")
    assert http.get(f"{url}/lantern/api/sessions/{mine['session']}/timeline").status_code == 200
    buttons["Forget …"].click()
    field = chrome.find_element(By.CSS_SELECTOR, "dialog input")
    field.send_keys("something else")
    chrome.find_element(By.CSS_SELECTOR, "dialog [type=submit]").click()
    until(chrome, "!document.querySelector('dialog .alert').hidden")
    assert http.get(f"{url}/lantern/api/sessions/{mine['session']}/timeline").status_code == 200
    field.clear()
    field.send_keys(mine["session"])
    chrome.find_element(By.CSS_SELECTOR, "dialog [type=submit]").click()
    until(chrome, "location.hash === '#/sessions'")
    assert http.get(f"{url}/lantern/api/sessions/{mine['session']}/timeline").status_code == 404


@browser_only
def test_a_request_shows_up_live(chrome, url, talk):
    show(chrome, url, "?period=day")
    until(chrome, "document.getElementById('live').dataset.state === 'on'")
    before = chrome.find_elements(By.CSS_SELECTOR, "tbody tr.fresh")
    assert before == []
    lantern_headers(ask(url, body("a question asked while somebody looks"), x_lantern_session="live-1"))
    until(chrome, "document.querySelector('tbody tr.fresh')")


@browser_only
@pytest.mark.parametrize("path", ["", "sessions", "search?q=port-6666", "marked", "try"])
def test_hostile_text_stays_text(chrome, url, hostile, path):
    id_ = http.get(f"{url}/lantern/api/search", params={"q": "OPS-3"}).json()[0]["passage"]["id"]
    http.post(f"{url}/lantern/api/edit", json={"passage": id_, "text": f"{EVIL} corrected OPS-3 port-6666"})
    show(chrome, url, path)
    time.sleep(0.3)
    assert chrome.execute_script("return [window.hit, document.querySelectorAll('main img, main script').length]") == [
        None,
        0,
    ]
    assert [line for line in complaints(chrome) if "Content Security" in line] == []


@browser_only
def test_a_hostile_session_and_its_requests_can_be_looked_at(chrome, url, hostile):
    for row in http.get(f"{url}/lantern/api/sessions").json():
        if "evil" in row["id"] or "port-6666" in row["title"]:
            show(chrome, url, f"sessions/{http_quote(row['id'])}")
            assert chrome.execute_script("return window.hit || null") is None
            assert "did not work" not in chrome.find_element(By.TAG_NAME, "h1").text
    show(chrome, url, f"requests/{hostile['request']}")
    assert EVIL.split(" ")[0] in chrome.find_element(By.TAG_NAME, "main").text
    assert chrome.execute_script("return window.hit || null") is None
    assert complaints(chrome) == []


def http_quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


@browser_only
@pytest.mark.parametrize("path", ["sessions/%", "%E0%A4%A", "constructor", "toString", "requests"])
def test_an_address_that_leads_nowhere_is_told(chrome, url, path):
    show(chrome, url, path)
    assert chrome.find_element(By.TAG_NAME, "h1").text == "That did not work"


@browser_only
@pytest.mark.parametrize("at", ["abc", "1e400", "-5"])
def test_a_place_that_is_no_number_is_the_beginning(chrome, url, talk, at):
    show(chrome, url, f"sessions/{talk['session']}?at={at}")
    until(chrome, "document.querySelector('.message')")


@browser_only
def test_an_address_with_a_password_shows_the_same(chrome, url, talk):
    show(chrome, url.replace("//", "//me:token@"))
    assert chrome.find_element(By.TAG_NAME, "h1").text == "Overview"


@browser_only
def test_a_button_whose_call_fails_says_so_and_works_again(chrome, url):
    for n in range(51):
        ask(url, body(f"Shelf {n} of the long list"))
    show(chrome, url, "sessions?q=long+list")
    more = until(chrome, "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Show more')")
    chrome.execute_cdp_cmd("Network.enable", {})
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    try:
        chrome.execute_cdp_cmd("Network.emulateNetworkConditions", network | {"offline": True})
        more.click()
        assert "the proxy does not answer" in until(chrome, "document.querySelector('.toast')?.textContent")
    finally:
        chrome.execute_cdp_cmd("Network.emulateNetworkConditions", network | {"offline": False})
    assert more.is_enabled()
    more.click()
    until(chrome, "document.querySelectorAll('main tbody tr').length > 50")


@browser_only
def test_the_keyboard_reaches_everything_in_order(chrome, url, talk):
    show(chrome, url, f"sessions/{talk['session']}")
    chrome.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    page = chrome.find_element(By.TAG_NAME, "body")
    page.send_keys(Keys.TAB)
    assert chrome.execute_script("return document.activeElement.className") == "skip"
    chrome.switch_to.active_element.send_keys(Keys.ENTER)
    assert chrome.execute_script("return document.activeElement.id") == "main"
    plot = until(chrome, "document.querySelector('.plot')")
    chrome.execute_script("arguments[0].focus()", plot)
    plot.send_keys(Keys.END)
    assert "Request 11" in chrome.find_element(By.CSS_SELECTOR, ".readout").text
    plot.send_keys(Keys.HOME, Keys.ARROW_DOWN)
    assert "summarised" in chrome.find_element(By.CSS_SELECTOR, ".readout").text
    plot.send_keys(Keys.ENTER)
    until(chrome, "location.hash.startsWith('#/requests/')")
    settled(chrome)
    assert chrome.execute_script("return document.activeElement.tagName") == "H1"


@browser_only
def test_the_theme_follows_the_system_until_it_is_chosen(chrome, url, talk):
    def shade(system: str) -> str:
        features = [{"name": "prefers-color-scheme", "value": system}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        return str(chrome.execute_script("return getComputedStyle(document.body).backgroundColor"))

    show(chrome, url)
    assert shade("light") != shade("dark")
    button = chrome.find_element(By.ID, "theme")
    button.click()
    assert button.get_attribute("aria-label") == "Theme: light"
    assert shade("light") == shade("dark")
    show(chrome, url, "marked")
    assert chrome.find_element(By.ID, "theme").get_attribute("aria-label") == "Theme: light"
    chrome.execute_script("localStorage.clear()")
    shade("light")


@browser_only
@pytest.mark.parametrize("width", [320, 768, 1440])
def test_nothing_is_wider_than_the_screen(chrome, url, talk, hostile, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for path in [*PAGES, f"sessions/{talk['session']}", f"requests/{hostile['request']}"]:
            show(chrome, url, path)
            wide = chrome.execute_script("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@browser_only
def test_a_phone_shows_what_was_asked_and_no_label_upon_another(chrome, url, talk):
    size = {"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        show(chrome, url)
        asked = chrome.find_element(By.CSS_SELECTOR, "section[aria-labelledby=latest] td.clip a")
        assert asked.size["width"] >= 180
        show(chrome, url, f"sessions/{talk['session']}")
        spots = chrome.execute_script(
            "return [...document.querySelectorAll('.chart text')].map((one) => one.getBoundingClientRect().toJSON())"
        )
        lowest = max(spot["bottom"] for spot in spots)
        below = sorted((spot for spot in spots if spot["bottom"] > lowest - 2), key=lambda spot: spot["left"])
        assert all(left["right"] <= right["left"] for left, right in itertools.pairwise(below))
        events = chrome.find_element(By.CSS_SELECTOR, "section[aria-labelledby=events] .scroll")
        assert chrome.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", events) <= 0
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@browser_only
def test_links_of_rankings_are_named_by_what_they_show(chrome, url, talk):
    """WCAG 2.5.3: who says what stands there means that link."""
    show(chrome, url, f"requests/{talk['request']}")
    links = until(chrome, "[...document.querySelectorAll('.columns a')]")
    for link in links:
        seen = link.find_elements(By.CSS_SELECTOR, "span:not(.hidden, [aria-hidden])")
        assert all(part.get_attribute("textContent") in link.accessible_name for part in seen)
    assert "Rank 1 of " in links[0].accessible_name


@browser_only
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier(chrome, url, talk, theme):
    axe = pytest.importorskip("axe_selenium_python", reason="axe-selenium-python is not installed").Axe
    features = [{"name": "prefers-color-scheme", "value": theme}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    for path in [*PAGES, f"sessions/{talk['session']}", f"requests/{talk['request']}"]:
        show(chrome, url, path)
        time.sleep(0.2)
        scan = axe(chrome)
        scan.inject()
        # this axe does not know yet that a <div> may stand around the <dt> and <dd> of a <dl>
        found = scan.run(options='{"rules": {"dlitem": {"enabled": false}}}')["violations"]
        told_of = [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found]
        assert not told_of, f"{path} ({theme}): {told_of}"
