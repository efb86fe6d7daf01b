"""The page in a real browser: parameters by mouse and keyboard, the address, snapshots, nothing from
elsewhere.
"""

import shutil
import threading
from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.live.access import door_of
from cascade_sim.live.connections import PageServer
from cascade_sim.live.server import Live, listening
from places import HANG

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
if BROWSER is None:
    pytest.skip(
        "no Chromium here: the page's own tests need one (apt install chromium)", allow_module_level=True
    )

SIZES = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]
TOKEN = "a-long-secret-that-nobody-guesses"
PATIENCE = 1000 * HANG  # milliseconds; a busy machine is no defect


@pytest.fixture(scope="module")
def address(folder, market, tmp_path_factory):
    """A server in a thread of this process, as the command runs it."""
    live, listener = Live([folder, tmp_path_factory.mktemp("no") / "run", market]), listening("127.0.0.1", 0)
    server = PageServer(live.app(door_of("127.0.0.1", listener.getsockname()[1], TOKEN)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, address):
    """Opens the page; in the end no other host was asked for anything, and the console has no error."""
    contexts, wrong = [], []

    def open_page(query="", width=1280, scheme="light", known=("status of 400",)):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if is_wrong(message, known) else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith((address, "blob:", "data:")) else wrong.append(r.url),
        )
        page.goto(address + (f"{query}&" if query else "?") + f"token={TOKEN}")
        settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def is_wrong(message, known):
    """An error of the page; that a question was refused is none, though Chromium writes it there."""
    return message.type == "error" and not any(words in message.text for words in known)


def settled(page):
    page.locator("#basis .badge", has_text="all requests").wait_for()


def headline(page):
    return page.locator("#headline").inner_text()


@pytest.mark.few(2)
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_it_fits_its_window_and_leads_with_the_answer(visit, width, scheme):
    page = visit("?set=auction.reserve_cpc=0.6", width, scheme)
    assert "Revenue per request" in headline(page) and "%" in headline(page)
    for view in ("curve", "funnel", "payers", "requests", "runs"):
        page.locator(f"#tab-{view}").click()
        page.locator(f"#view-{view} .card").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 24, 29)") == (scheme == "dark")


def test_a_slider_moves_the_answer_and_the_address_and_the_address_restores_it(visit):
    page = visit()
    assert "current" in headline(page)
    slider = page.locator("#parameter-auction-reserve_cpc")
    slider.evaluate(
        "node => { node.value = node.max; node.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.locator("#headline", has_text="%").wait_for()
    settled(page)
    assert "set=auction.reserve_cpc" in page.url
    said, again = headline(page), visit(page.url.partition("/?")[2] and "?" + page.url.partition("/?")[2])
    assert headline(again) == said
    assert again.locator("#parameter-auction-reserve_cpc").input_value() == slider.input_value()
    again.locator("#reset").click()
    again.locator("#headline", has_text="current").wait_for()
    assert "set=" not in again.url


def test_what_users_and_advertisers_get_stands_first_and_what_gets_worse_is_named(visit):
    page = visit("?set=auction.squashing=0.3")
    said, tiles = headline(page), page.locator("#tiles .tile")
    assert [
        next(word for word in ("Ads shown", "Clicks", "CPC", "Surplus") if text.startswith(word))
        for text in tiles.locator(".label").all_inner_texts()[:4]
    ] == ["Ads shown", "Clicks", "CPC", "Surplus"]
    worse = page.locator("#tiles .tile.worse .label").all_inner_texts()
    assert worse and all("gets worse" in label for label in worse)
    assert ("CPC" in " ".join(worse)) == ("CPC" in said) and said.rstrip().endswith("worse.")
    page.locator("#reset").click()
    page.locator("#headline", has_text="current").wait_for()
    assert page.locator("#tiles .tile.worse").count() == 0 and "worse" not in headline(page)


@pytest.mark.drill
def test_everything_can_be_done_with_the_keyboard(visit):
    page = visit()
    page.locator("#parameter-auction-squashing").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.locator("#headline", has_text="%").wait_for()
    assert "auction.squashing%3D0.8" in page.url
    page.locator("#tab-curve").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#view-funnel .card").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "tab-funnel"


@pytest.mark.drill
def test_every_control_has_a_name_for_who_cannot_see(visit):
    page = visit("?set=auction.reserve_cpc=0.6&view=requests&request=7")
    page.locator("#look h2").wait_for()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button, svg[role=img], [role=region]')]
        .filter(n => n.checkVisibility() && !(n.getAttribute('aria-label') || n.textContent.trim()
        || (n.labels && n.labels.length))).map(n => n.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("main h1").count() == 1 and page.locator("html").get_attribute("lang") == "en"


def test_a_refusal_is_said_in_words_and_taken_back(visit):
    page = visit()
    page.locator("#word").fill("cascade.pre_ranking.size=2")
    page.keyboard.press("Enter")
    page.locator("#refusal", has_text="leaves no runner-up").wait_for()
    assert (
        page.locator("#tiles .tile, #curve-chart svg").count() == 0 and page.locator("#exact").is_disabled()
    )
    page.get_by_role("button", name="Remove cascade.pre_ranking.size=2").click()
    settled(page)
    assert page.locator("#refusal").is_hidden()


def test_the_exact_answer_is_marked_and_the_command_is_shown(visit, folder):
    page = visit("?set=auction.reserve_cpc=0.6")
    assert page.locator("#command").inner_text().endswith(f"whatif {folder} --set auction.reserve_cpc=0.6")
    page.locator("#exact").click()
    page.locator("#basis .badge", has_text="bootstrapped").wait_for()


@pytest.mark.drill
def test_an_exact_answer_says_that_it_holds_the_arm_against_itself(visit):
    page = visit("?set=auction.reserve_cpc=0.6&against=ltr")
    assert tells(page.locator("#question").inner_text(), "arm ltr")
    assert tells(page.locator("#same-words").inner_text(), "unmodified arm")
    page.locator("#tab-funnel").click()
    assert "ltr" in page.locator("#view-funnel [aria-label='Ads by stage'] thead").inner_text()
    page.locator("#exact").click()
    page.locator("#basis .badge", has_text="bootstrapped").wait_for()
    assert tells(page.locator("#question").inner_text(), "unmodified arm")


@pytest.mark.drill
def test_the_answer_stays_in_sight_while_a_parameter_below_it_is_turned(visit):
    page = visit(width=390)
    assert page.locator("#mini").is_hidden()
    slider = page.locator("#parameter-cascade-slots")
    slider.scroll_into_view_if_needed()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.locator("#mini", has_text="%").wait_for()
    settled(page)  # the answer on a part of the requests is replaced by that on all
    assert page.locator("#mini").inner_text() == headline(page).replace("\n", " ")


@pytest.mark.drill
def test_the_curve_has_a_point_where_the_parameter_stands(visit):
    page = visit("?set=auction.reserve_cpc=0.123")
    page.locator("#curve-chart circle.now").wait_for()
    assert "= 0.123:" in page.locator("#curve-chart circle.now title").text_content()


@pytest.mark.drill
def test_the_address_has_what_was_looked_for_among_the_requests(visit):
    page = visit("?set=cascade.slots=2&view=requests&find.sort=loss&find.changed=&find.least=0.01")
    page.locator("#list table").wait_for()
    assert page.locator("[name=sort]").input_value() == "loss"
    assert page.locator("[name=least]").input_value() == "0.01"
    assert not page.locator("[name=changed]").is_checked()
    page.locator("[name=user]").fill("no such")
    page.get_by_role("button", name="Find").click()
    page.locator("#list .notice").wait_for()
    assert "find.user=no+such" in page.url and "find.least=0.01" in page.url


@pytest.mark.drill
def test_a_server_that_is_gone_is_said_to_be(visit):
    page = visit(known=("net::ERR_FAILED",))
    page.route("**/api/answer*", lambda route: route.abort())
    page.locator("#parameter-cascade-slots").focus()
    page.keyboard.press("ArrowLeft")
    page.locator("#refusal", has_text="does not answer").wait_for()
    assert headline(page) == "No answer"


def test_a_request_its_pages_and_the_bid_that_would_have_won(visit):
    page = visit("?set=cascade.slots=2&view=requests")
    page.locator("#list button.plain").first.click()
    page.locator("#look h2").wait_for()
    assert page.locator("#look .sides table").count() == 2
    page.locator("#look .sides .card").last.locator("tr.is-out button").first.click()
    page.locator("#look .verdict").wait_for()
    assert tells(page.locator("#look").inner_text(), "bid", "would have won")
    assert "request=" in page.url and "ad=" in page.url


def test_a_snapshot_opens_from_the_disk_by_itself(visit, browser, tmp_path):
    page = visit("?set=auction.reserve_cpc=0.6&view=payers")
    with page.expect_download() as saving:
        page.locator("#snapshot").click()
    file = Path(tmp_path / "snapshot.html")
    saving.value.save_as(file)
    context, asked, wrong = browser.new_context(), [], []
    opened = context.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: wrong.append(message.text))
    opened.goto(file.as_uri())
    assert opened.locator("h1").inner_text() == headline(page)
    assert "top 1 %" in opened.locator("body").inner_text() and opened.locator("button, script").count() == 0
    context.close()
    assert asked == [file.as_uri()] and wrong == []


def test_a_damaged_run_is_named_and_a_market_has_its_day(visit):
    page = visit("?run=2&set=auction.reserve_cpc=0.6&view=day")
    assert "cannot be opened" in page.locator("#damaged").inner_text()
    page.locator("#view-day svg").first.wait_for()
    assert page.locator("#run").input_value() == "2"
