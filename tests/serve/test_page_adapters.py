"""The page of a model whose adapters come with the package: their tabs, and a search over one's own lines."""

from __future__ import annotations

import pytest
from running import ask, running, until
from small_adapters import make_adapter_folder, make_base

from litebert.predict.predictor import Predictor
from litebert.tasks.task import Task

TASKS = {
    "sentiment": Task("sentiment", "classification", labels=("negative", "positive"), max_length=40),
    "entailment": Task("nli", "classification", labels=("entailment", "neutral", "contradiction"), pair=True),
    "questions": Task("squad", "question-answering", max_length=48),
    "similarity": Task("similarity", "similarity", max_length=48, pair=None),
}
LINES = ["anna lives in oslo.", "the old dog sleeps.", "good morning, ben.", "a warm and funny day."]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """A small model with adapters as the package has them."""
    folder = tmp_path_factory.mktemp("packaged")
    predictor = Predictor(make_base(folder / "base"), device="cpu", threads=1)
    predictor.shipped = {
        name: make_adapter_folder(folder / name, folder / "base", task, seed=number)
        for number, (name, task) in enumerate(TASKS.items())
    }
    predictor._list_abilities()
    return predictor


@pytest.fixture(scope="module")
def server(predictor):
    with running({"default": predictor}) as client:
        yield client


def test_packaged_adapters_have_tabs(server, open_page):
    page = open_page(server, "sentiment")
    assert page.locator('[role="tab"]').all_inner_texts() == [
        *("Fill mask", "Order", "Coherence", "Similarity", "Attention", "Sentiment", "Entailment", "Answers"),
    ]
    assert page.locator("#about").inner_text().endswith("· default"), "adapters are no models of their own there"
    ask(page, "sentiment", text="a warm day")
    assert page.locator("#sentiment .big").inner_text() in ("negative", "positive")
    assert "default:sentiment" in page.locator("#sentiment .meta").inner_text()
    assert "/classify" in page.locator("#sentiment pre").text_content()
    page.click("#tab-entailment")
    page.wait_for_selector("#entailment .meta")
    assert page.locator("#entailment .bar").count() == 3
    page.fill("#entailment-pair", " ")
    page.click("#entailment .go")
    assert "Fill in both fields" in page.locator("#entailment [role=alert]").inner_text()
    page.click("#tab-answer")
    page.wait_for_selector("#answer .meta")
    assert "default:questions" in page.locator("#answer .meta").inner_text(), "who answered for the model"


@pytest.mark.parametrize(
    ("tab", "shown"), [("sentiment", "text"), ("entailment", "pair"), ("answer", "question"), ("embed", "query")]
)
def test_every_tab_of_an_adapter_offers_examples(server, open_page, tab, shown):
    page = open_page(server, tab)
    known = page.evaluate("async () => (await import('/examples.js')).EXAMPLES.en")[tab]
    chips = page.locator(f"#{tab} .example")
    assert len(known) == 3
    assert chips.all_inner_texts() == [example[shown] for example in known]
    names = {"sentiment": "/classify", "entailment": "/classify"}
    for number in (2, 1, 0):
        with page.expect_response(f"**{names.get(tab, '/' + tab)}") as answered:
            chips.nth(number).click()
        sent = answered.value.request.post_data_json
        for name, text in known[number].items():
            assert page.input_value(f"#{tab}-{name}") == text
            assert text.split("\n")[-1] in str(sent), "it is asked at once"
        page.wait_for_selector(f"#{tab} .result:not([aria-busy]) .meta")


def test_an_adapter_of_the_users_own_is_a_model_to_choose(predictor, open_page):
    mine = Predictor(predictor.name, device="cpu", threads=1)
    mine.shipped = predictor.shipped
    mine._list_abilities()
    mine.add_adapter("mood", predictor.shipped["sentiment"])
    with running({"default": mine}) as client:
        page = open_page(client, "classify")
        tabs = page.locator('[role="tab"]').all_inner_texts()
        assert tabs[-4:] == ["Sentiment", "Entailment", "Classify", "Answers"]
        assert "default:mood" in page.locator("#classify .meta").inner_text()


def test_a_search_over_ones_own_lines(server, predictor, open_page):
    page = open_page(server, "embed")
    ask(page, "embed", query="the old dog", text="\n".join(LINES))
    expected = predictor.search("the old dog", LINES)
    assert page.locator("#embed .hits .name").all_inner_texts() == [hit.text for hit in expected.hits]
    numbers = [float(text) for text in page.locator("#embed .hits .number").all_inner_texts()]
    assert numbers == pytest.approx([hit.score for hit in expected.hits], abs=6e-4)
    assert page.locator("#embed .map td button").count() == 16, "the map is of the lines alone"
    assert "default:similarity" in page.locator("#embed .meta").inner_text()
    assert "only pretrained" not in page.locator("#embed .result").inner_text()
    with page.expect_response("**/embed"):
        page.fill("#embed-query", "good morning")  # the picture follows what is written
    until(page, lambda: "good morning" in page.locator("#embed .hits").inner_text())
    ask(page, "embed", query="")
    assert page.locator("#embed .hits").count() == 0


def test_many_lines_are_points_of_a_plane(server, open_page):
    page = open_page(server, "embed")
    lines = [f"{line[:-1]} on day {day}." for day in range(5) for line in LINES]
    ask(page, "embed", query="the old dog", text="\n".join(lines))
    points = page.locator("#embed .plane g")
    assert points.count() == len(lines) + 1
    assert page.locator("#embed .plane .query").count() == 1
    assert "the old dog" in page.locator("#embed .readout").inner_text()
    places = points.locator("circle").evaluate_all("all => all.map((c) => [c.cx.baseVal.value, c.cy.baseVal.value])")
    assert len({tuple(place) for place in places}) == len(places), "different lines, different places"
    assert all(0 <= value <= 420 for place in places for value in place)
    points.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert lines[1] in page.locator("#embed .readout").inner_text()
    page.fill("#embed-text", "\n".join(f"line {number}" for number in range(101)))
    page.click("#embed .go")
    assert "101 lines are too many" in page.locator("#embed [role=alert]").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_phone(server, open_page, scheme):
    page = open_page(server, "embed", viewport={"width": 360, "height": 740}, color_scheme=scheme)
    ask(page, "embed", query="the old dog", text="\n".join(f"{line} {number}" for number in range(4) for line in LINES))
    for tab in ("embed", "sentiment", "entailment", "answer"):
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#{tab} .meta")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
