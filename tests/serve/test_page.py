"""The page in a real Chromium: every ability, by mouse and keyboard, on a desk and on a phone, by day and by night."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from fake_predictor import FakePredictor
from running import ask, running, until

from litebert.text.sentences import split_sentences
from litebert.text.words import Language, language_of

ABILITIES = ["fill_mask", "sentence_order", "coherence", "embed", "attention", "classify", "tag", "answer", "choose"]


def page_examples(page):
    """What the forms hold at first: language -> ability -> examples."""
    return page.evaluate("async () => (await import('/examples.js')).EXAMPLES")


def test_the_first_view_shows_every_loaded_ability_and_a_result(tiny_server, open_page):
    page = open_page(tiny_server)
    page.wait_for_selector("#fill_mask .meta")
    tabs = page.locator('[role="tab"]')
    assert tabs.all_inner_texts() == [
        *("Fill mask", "Order", "Coherence", "Similarity", "Attention", "Classify", "Tags", "Answers", "Choices"),
    ]
    assert page.locator('[role="tabpanel"]:visible').count() == 1
    assert page.title() == "Fill mask · litebert"


def test_only_the_abilities_of_the_loaded_models_are_shown(open_page):
    with running({"one": FakePredictor(abilities=("embed", "classify"))}) as client:
        page = open_page(client, "embed")
        assert page.locator('[role="tab"]').all_inner_texts() == ["Similarity", "Classify"]


def test_fill_mask(tiny_server, open_page):
    page = open_page(tiny_server, "fill_mask")
    ask(page, "fill_mask", text="👩‍👩‍👧 Zoë [MASK] <b>the</b> old [MASK].")
    groups = page.locator('#fill_mask [role="radiogroup"]')
    assert groups.count() == 2
    guesses = groups.nth(0).locator('[role="radio"]')
    assert guesses.count() == 6
    page.locator("#fill_mask .bar").nth(2).click()
    words = [groups.nth(0).locator(".name").nth(2).inner_text(), groups.nth(1).locator(".name").nth(0).inner_text()]
    expected = f"👩‍👩‍👧 Zoë {words[0]} <b>the</b> old {words[1]}."
    assert page.locator("#fill_mask .sentence").inner_text() == expected
    assert page.locator("#fill_mask .result b").count() == 0, "text is never markup"
    widths = [float(bar.evaluate("e => e.style.width").strip("%")) for bar in guesses.locator("i").all()]
    assert widths == sorted(widths, reverse=True)
    numbers = [float(text.strip(" %<")) for text in groups.nth(0).locator(".number").all_inner_texts()]
    assert widths == pytest.approx(numbers, abs=0.06)
    page.locator(".example").nth(1).click()
    assert page.input_value("#fill-text") == page_examples(page)["en"]["fill_mask"][1]["text"]


def order_of(page):
    return [area.input_value() for area in page.locator("#sentences textarea").all()]


def probability(page, ability):
    return float(page.locator(f"#{ability} .big").inner_text().strip(" %<"))


def test_sentences_are_dragged(tiny_server, open_page):
    page = open_page(tiny_server, "sentence_order")
    ask(page, "sentence_order", a="Anna bought 1,000 apples.", b="Ben slept.")
    before = probability(page, "sentence_order")
    handles = page.locator(".handle")
    start, end = (handles.nth(i).bounding_box() for i in (0, 1))
    page.mouse.move(start["x"] + 20, start["y"] + 20)
    page.mouse.down()
    page.mouse.move(start["x"] + 20, start["y"] + 40, steps=3)
    assert order_of(page)[0].startswith("Anna"), "not yet far enough"
    page.mouse.move(start["x"] + 20, end["y"] + 20, steps=5)
    with page.expect_response("**/sentence-order") as sent:
        page.mouse.up()
    assert order_of(page) == ["Ben slept.", "Anna bought 1,000 apples."]
    assert sent.value.request.post_data_json["a"] == "Ben slept."
    page.wait_for_selector("#sentence_order .result:not([aria-busy])")
    assert probability(page, "sentence_order") == pytest.approx(100 - before, abs=0.11)
    # A drag that ends where it began changes nothing.
    box = handles.nth(0).bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, box["y"] + 30)
    page.mouse.up()
    assert order_of(page)[0] == "Ben slept."


def test_coherence_is_drawn_at_every_boundary(tiny_server, open_page):
    page = open_page(tiny_server, "coherence")
    sentences = ["Anna slept.", "Ben read the old book.", "The rain fell.", "A farmer walked to the café."]
    ask(page, "coherence", text=" ".join(sentences))
    assert page.locator("#coherence .link").all_inner_texts() == sentences
    joints = [float(text.split("%")[0]) for text in page.locator("#coherence .joint").all_inner_texts()]
    assert len(joints) == 3
    assert probability(page, "coherence") == pytest.approx(sum(joints) / 3, abs=0.1)
    assert page.locator("#coherence .profile circle").count() == 3
    with page.expect_response("**/coherence"):
        page.click("#shuffle")
    page.wait_for_selector("#coherence .result:not([aria-busy])")
    shuffled = page.locator("#coherence .link").all_inner_texts()
    assert shuffled != sentences
    assert sorted(shuffled) == sorted(sentences)
    with page.expect_response("**/coherence"):
        page.click("#unshuffle")
    assert page.input_value("#coherence-text") == " ".join(sentences)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_map_of_twelve_lines_keeps_its_labels(tiny_server, open_page, width):
    page = open_page(tiny_server, "embed", viewport={"width": width, "height": 800})
    lines = [f"Anna bought {number} apples." for number in range(12)]
    ask(page, "embed", text="\n".join(lines))
    assert page.locator("#embed .map td button").count() == 144
    labels = page.locator("#embed .map tbody th")
    assert labels.all_inner_texts() == [f"{number}. {line}" for number, line in enumerate(lines, 1)]
    frame = page.locator("#embed .scroll")
    for scrolled in (0, 10_000):
        frame.evaluate("(node, x) => { node.scrollLeft = x }", scrolled)
        inside = frame.bounding_box()
        box = labels.nth(11).bounding_box()
        assert box["width"] >= 70
        assert box["x"] >= inside["x"] - 1, "in view, however far the map is scrolled"
    if width > 360:
        last = page.locator('#embed [data-at="0 11"]').bounding_box()
        assert last["x"] + last["width"] <= inside["x"] + inside["width"], "and all of the map is"


def test_similarity(tiny_server, open_page):
    page = open_page(tiny_server, "embed")
    ask(page, "embed", text="Anna slept.\n\nBen read the old book.\nAnna slept.")
    cells = page.locator("#embed .map td button")
    assert cells.count() == 9
    value = {(i, j): cells.nth(3 * i + j).inner_text() for i in range(3) for j in range(3)}
    assert float(value[0, 2]) == pytest.approx(1)
    assert value[0, 1] == value[1, 0]
    assert float(value[0, 1]) < 1
    cells.nth(1).hover()
    assert "Ben read the old book." in page.locator("#embed .readout").inner_text()


def test_attention(tiny_server, open_page):
    page = open_page(tiny_server, "attention")
    ask(page, "attention", text="Anna slept.", pair="Ben read.")
    assert "of 3" in page.locator("#attention .controls").inner_text()
    tokens = page.locator('#attention .lines g[role="button"]')
    assert tokens.first.text_content() == "[CLS]"
    first = page.locator("#attention .lines path").count()
    before = page.locator("#attention .lines path").first.get_attribute("stroke-opacity")
    page.fill('#attention input[data-of="layer"]', "3")
    page.fill('#attention input[data-of="head"]', "2")
    assert page.locator("#attention .lines path").first.get_attribute("stroke-opacity") != before
    tokens.nth(1).hover()
    assert 0 < page.locator("#attention .lines path").count() < first
    # The overview chooses application and head by a click, and is really painted.
    canvas = page.locator("#attention canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.5})
    assert page.locator("#attention output").all_inner_texts() == ["2", "4"]
    colours = canvas.evaluate("c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size")
    assert colours > 20
    page.click("#attention .controls button")
    until(page, lambda: page.locator("#attention output").first.inner_text() == "3")


def test_classify(tiny_server, open_page):
    page = open_page(tiny_server, "classify")
    ask(page, "classify", text="Anna slept.")
    names = page.locator("#classify .bar .name").all_inner_texts()
    assert sorted(names) == ["calm", "glad", "sad"]
    assert page.locator("#classify .big").inner_text() == names[0]
    shares = [float(text.strip(" %<")) for text in page.locator("#classify .bar .number").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_a_model_of_pairs_asks_for_two_texts(tiny_pairs, tiny_predictors, open_page):
    with running({"mood": tiny_predictors["classification"], "sts-b": tiny_pairs}) as client:
        page = open_page(client, "classify")
        assert not page.is_visible("#classify-pair"), "a model of single texts asks for one"
        sent = switch(page, "classify", "sts-b")
        assert sent["text"].startswith("A man is playing")
        assert sent["pair"].startswith("A man is playing music")
        assert page.is_visible("#classify-pair")
        assert page.locator("#classify .under").inner_text() == "on a scale from 0 to 5"
        assert page.locator("#classify .scale .ends").inner_text().split() == ["0", "5"]
        page.fill("#classify-pair", " ")
        page.click("#classify .go")
        assert "fill in both fields" in page.locator("#classify [role=alert]").inner_text()
        sent = switch(page, "classify", "mood")
        assert sent["pair"] is None
        assert sent["text"].startswith("a warm, funny")


def test_tags_stand_in_the_text(tiny_server, open_page):
    page = open_page(tiny_server, "tag")
    text = "👍🏽 Anna walked to the café."
    ask(page, "tag", text=text)
    marked = page.locator("#tag .context").evaluate(
        "p => { p = p.cloneNode(true); p.querySelectorAll('small').forEach(s => s.remove()); return p.textContent; }"
    )
    assert marked == text
    page.click("#tag .result details >> nth=0")
    lines = page.locator("#tag .words thead > tr > *").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell).borderTopWidth)"
    )
    assert set(lines) == {"0px"}, "no stray line above the head"
    words = page.locator("#tag .words tbody th").all_inner_texts()
    assert [word for word in words if word.isalpha()] == ["Anna", "walked", "to", "the", "café"]


def test_the_answer_is_highlighted_where_it_stands(tiny_server, open_page):
    page = open_page(tiny_server, "answer")
    context = "🙂 Ben read the old book. Anna slept while the rain fell."
    ask(page, "answer", question="Who slept?", context=context)
    candidates = page.locator('#answer [role="radio"]')
    assert page.locator("#answer .context").inner_text() == context
    for i in range(candidates.count()):
        candidates.nth(i).click()
        assert page.locator("#answer mark").inner_text() == candidates.nth(i).locator(".name").inner_text()
        assert page.locator("#answer .context").inner_text() == context
    assert page.locator("#answer .bar").count() == candidates.count() + 1, "and how likely it is that there is none"


def test_multiple_choice(tiny_server, open_page):
    page = open_page(tiny_server, "choose")
    assert page.locator("#choose .bar").count() == 4
    page.click('button[aria-label="Remove option B"]')
    until(page, lambda: page.locator("#choose .bar").count() == 3)
    page.click("#add-option")
    page.keyboard.type("<i>A farmer</i>")
    ask(page, "choose")
    names = page.locator("#choose .bar .name").all_inner_texts()
    assert names[3] == "D  <i>A farmer</i>" or names[3].split() == ["D", "<i>A", "farmer</i>"]
    assert page.locator("#choose .big").inner_text() in " ".join(names)


def test_with_the_keyboard_alone(tiny_server, open_page):
    page = open_page(tiny_server)
    page.wait_for_selector("#fill_mask .meta")
    focused = "document.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.className") == "skip"
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.id") == "tab-fill_mask"
    # Tabs: arrows move and open, Home and End jump.
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#sentence_order .meta")
    page.keyboard.press("End")
    page.wait_for_selector("#choose .meta")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{focused}.id") == "tab-fill_mask"
    # The guesses are one stop, and the arrows choose among them.
    before = page.locator("#fill_mask .sentence").inner_text()
    page.focus('#fill_mask [role="radio"][tabindex="0"]')
    page.keyboard.press("ArrowDown")
    assert page.locator("#fill_mask .sentence").inner_text() != before
    # Ctrl + Enter asks.
    page.focus("#fill-text")
    with page.expect_response("**/fill-mask"):
        page.keyboard.press("Control+Enter")
    # A sentence moves with the arrows, and keeps the focus.
    page.click("#tab-sentence_order")
    first, second = order_of(page)
    page.focus(".handle >> nth=0")
    page.keyboard.press("ArrowUp")
    assert order_of(page) == [first, second], "it is the first already"
    page.keyboard.press("ArrowDown")
    assert order_of(page) == [second, first]
    assert page.evaluate(f"{focused}.className") == "handle"
    page.keyboard.press("ArrowUp")
    assert order_of(page) == [first, second]
    # The map of similarities is one stop, too.
    page.click("#tab-embed")
    page.wait_for_selector("#embed .meta")
    page.focus('#embed .map [tabindex="0"]')
    page.keyboard.press("ArrowDown")
    assert page.evaluate(f"{focused}.dataset.at") == "1 1"
    # Sliders by nature.
    page.click("#tab-attention")
    page.wait_for_selector("#attention .meta")
    page.focus('#attention input[data-of="layer"]')
    page.keyboard.press("ArrowRight")
    assert page.locator("#attention output").first.inner_text() == "2"


def test_the_smallest_and_the_largest_number_stand_on_one_line(tiny_server, open_page):
    page = open_page(tiny_server, "classify", viewport={"width": 360, "height": 740})
    number = page.locator("#classify .number").first
    heights = []
    for text in ("9.9\u00a0%", "100.0\u00a0%", "<\u00a00.1\u00a0%"):
        number.evaluate("(node, text) => { node.textContent = text }", text)
        heights.append(number.bounding_box()["height"])
        assert number.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert len(set(heights)) == 1
    shown = page.evaluate("async () => [0.00001, 0.5, 1].map((await import('/dom.js')).percent)")
    assert shown == ["<\u00a00.1\u00a0%", "50.0\u00a0%", "100.0\u00a0%"]


def test_results_are_announced(tiny_server, open_page):
    page = open_page(tiny_server, "classify")
    label = page.locator("#classify .big").inner_text()
    assert page.locator("#status").inner_text() == f"Result: {label}"


def test_a_change_is_answered_without_a_click(tiny_server, open_page):
    page = open_page(tiny_server, "fill_mask")
    with page.expect_response("**/fill-mask"):
        page.fill("#fill-text", "Ben [MASK] the book.")
    until(page, lambda: page.locator("#fill_mask [role=radiogroup]").count() == 1)


def test_on_a_phone_nothing_sticks_out_and_everything_can_be_touched(tiny_server, open_page):
    page = open_page(tiny_server, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    for ability in ABILITIES:
        page.tap(f"#tab-{ability}")
        page.wait_for_selector(f"#{ability} .meta")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, ability
        small = page.evaluate(
            """ability => [...document.querySelectorAll('[role=tab]'),
                           ...document.querySelectorAll(`#${ability} :is(form button, input, select)`)]
                .filter(e => e.offsetParent && e.getBoundingClientRect().height < 32).map(e => e.outerHTML)""",
            ability,
        )
        assert small == []
        form, result = (page.locator(f"#{ability} {part}").bounding_box() for part in ("form", ".result"))
        assert result["y"] >= form["y"] + form["height"], "one below the other"
        wrapped = page.locator(f"#{ability} .number").evaluate_all(
            "all => all.filter(n => n.offsetParent && n.getClientRects()[0].height > 30).map(n => n.textContent)"
        )
        assert wrapped == [], "a number stands on one line"
        tab = page.locator(f"#tab-{ability}").bounding_box()
        assert tab["x"] >= 0, "the open tab is in view"
        assert tab["x"] + tab["width"] <= 360
        if ability == "sentence_order":
            hidden = page.locator("#sentences textarea").evaluate_all(
                "areas => areas.filter(area => area.scrollHeight > area.clientHeight).map(area => area.value)"
            )
            assert hidden == [], "a sentence is seen whole"


def test_sentences_are_dragged_with_a_finger(tiny_server, open_page):
    page = open_page(
        tiny_server, "sentence_order", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    first, second = order_of(page)
    start, end = (page.locator(".handle").nth(i).bounding_box() for i in (0, 1))
    touch = page.context.new_cdp_session(page)

    def send(kind, *points):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})

    x, top, bottom = start["x"] + 20, start["y"] + 20, end["y"] + 20
    send("touchStart", (x, top))
    for step in range(1, 6):
        send("touchMove", (x, top + (bottom - top) * step / 5))
    send("touchEnd")
    until(page, lambda: order_of(page) != [first, second])
    assert order_of(page) == [second, first]


def luminance(colour):
    whole = 1 if colour.startswith("color(srgb") else 255  # mixed colours are given in parts of one
    channels = [float(part) / whole for part in re.findall(r"\d[\d.e-]*", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(*colours):
    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_by_day_and_by_night(tiny_server, open_page, scheme):
    page = open_page(tiny_server, "fill_mask", color_scheme=scheme)
    assert (luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.2) == (scheme == "dark")
    pairs = [
        ("body", "body"),
        (".lead p", "body"),
        ("footer", "body"),
        ("#fill-text", "#fill-text"),
        ("#fill_mask label", "#fill_mask .card"),
        (".bar .number", "#fill_mask .card"),
        (".meta", "#fill_mask .card"),
        (".go", ".go"),
        ("a.endpoints", "body"),
    ]
    for text, ground in pairs:
        colours = page.evaluate(
            """([text, ground]) => [getComputedStyle(document.querySelector(text)).color,
                                   getComputedStyle(document.querySelector(ground)).backgroundColor]""",
            [text, ground],
        )
        assert contrast(*colours) >= 4.5, (text, colours)  # WCAG 2, AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_number_of_the_similarity_map_can_be_read(tiny_server, open_page, scheme):
    page = open_page(tiny_server, "embed", color_scheme=scheme)
    colours = page.evaluate(
        """() => { const button = document.querySelector("#embed .map td:not(.self) button");
                   return [...Array(93).keys()].map((i) => {
                       button.style.setProperty("--share", String(8 + i));
                       const style = getComputedStyle(button);
                       return [style.color, style.backgroundColor]; }); }"""
    )
    assert len({ground for _, ground in colours}) > 80
    assert min(contrast(*pair) for pair in colours) >= 4.5  # WCAG 2, AA


@pytest.mark.parametrize("width", [375, 1200])
def test_the_outline_of_a_chosen_cell_is_whole_at_every_edge(tiny_server, open_page, width):
    page = open_page(tiny_server, "embed", viewport={"width": width, "height": 800})
    ask(page, "embed", text="Anna slept.\nBen read.\nAnna ate.")
    frame = page.locator("#embed .scroll").bounding_box()
    for at in ("0 1", "2 1", "0 2", "2 0"):
        cell = page.locator(f'#embed [data-at="{at}"]').bounding_box()
        for start, size in (("x", "width"), ("y", "height")):
            assert cell[start] - 3 >= frame[start] - 0.01
            assert cell[start] + cell[size] + 3 <= frame[start] + frame[size] + 0.01


def test_the_axis_of_the_boundaries_can_be_read_on_a_phone(tiny_server, open_page):
    page = open_page(tiny_server, "coherence", viewport={"width": 375, "height": 700}, is_mobile=True)
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("#coherence .profile text")].map(
            (text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    )
    assert len(sizes) == 3
    assert min(sizes) >= 10


def test_colours_follow_the_system_at_once(tiny_server, open_page):
    page = open_page(tiny_server, "attention", color_scheme="light")
    read = "c => [...c.getContext('2d').getImageData(3, 3, 1, 1).data].join()"
    before = page.locator("#attention canvas").evaluate(read)
    page.emulate_media(color_scheme="dark")
    until(page, lambda: page.locator("#attention canvas").evaluate(read) != before)
    after = page.locator("#attention canvas").evaluate(read)
    assert luminance(after) < luminance(before), "a darker map by night"


def test_mistakes_are_said_where_the_answer_would_stand(tiny_server, open_page):
    page = open_page(tiny_server, "fill_mask", refusals=True)
    ask(page, "fill_mask", text="no mask at all")
    alert = page.locator("#fill_mask [role=alert]")
    assert "[MASK]" in alert.inner_text()
    assert alert.locator("button").count() == 0, "trying again would not help"
    ask(page, "fill_mask", text="a [MASK]")
    assert alert.count() == 0
    page.click("#tab-embed")
    page.wait_for_selector("#embed .meta")
    page.fill("#embed-text", "one line")
    page.click("#embed .go")
    assert "two lines" in page.locator("#embed [role=alert]").inner_text()
    page.click("#tab-sentence_order")
    page.wait_for_selector("#sentence_order .meta")
    page.fill("#order-b", " ")
    page.click("#sentence_order .go")
    assert "both fields" in page.locator("#sentence_order [role=alert]").inner_text()


def test_a_mistake_while_the_model_works_is_shown_at_once(open_page):
    fake = FakePredictor(abilities=("embed",))
    with running({"fake": fake}) as client:
        page = open_page(client, "embed")
        fake.go.clear()
        page.click("#embed .go")
        page.wait_for_selector("#embed .result[aria-busy]")
        page.fill("#embed-text", "one line")
        page.click("#embed .go")
        assert "two lines" in page.locator("#embed [role=alert]").inner_text()
        assert page.locator("#embed .result[aria-busy]").count() == 0, "nothing is waited for"


def test_each_line_runs_as_its_letters_do(tiny_server, open_page):
    """Of a right-to-left sentence the full stop stands at the left, in the form and in the answer."""
    page = open_page(tiny_server, "coherence")
    ask(page, "coherence", text="مرحبا بالعالم. وعدنا إلى البيت.")
    for selector in ("#coherence-text", "#coherence .link >> nth=0"):
        assert page.locator(selector).evaluate("node => getComputedStyle(node).unicodeBidi") == "plaintext"
    edges = page.locator("#coherence .link >> nth=0").evaluate(
        """node => [0, node.firstChild.length - 1].map(at => {
            const range = document.createRange();
            range.setStart(node.firstChild, at);
            range.setEnd(node.firstChild, at + 1);
            return range.getBoundingClientRect().x;
        })"""
    )
    assert edges[1] < edges[0]


def test_a_busy_a_failing_and_a_missing_server(open_page):
    fake = FakePredictor(abilities=("embed",))
    with running({"fake": fake}, timeout_s=3) as client:
        page = open_page(client, "embed", refusals=True)
        fake.go.clear()
        ask(page, "embed")
        alert = page.locator("#embed [role=alert]")
        assert "too long" in alert.inner_text()
        fake.go.set()
        with page.expect_response("**/embed"):
            alert.locator("button").click()
        page.wait_for_selector("#embed .meta")
        ask(page, "embed", text="fine\nexplode")
        assert "The server failed" in alert.inner_text()
    page.click("#embed .go")
    until(page, lambda: "still running" in alert.inner_text())


def test_a_server_with_a_key_asks_for_it(open_page):
    with running({"fake": FakePredictor(abilities=("embed",))}, api_key="open sesame") as client:
        page = open_page(client, "embed", wait=False, refusals=True)
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#trouble:visible")
        assert "Wrong key" in page.locator("#trouble").inner_text()
        page.fill("#key", "열려라")  # an input method that was left on: no header can carry this
        page.keyboard.press("Enter")
        until(page, lambda: page.locator("#key").input_value() == "")
        assert "Wrong key" in page.locator("#trouble").inner_text()
        page.fill("#key", "open sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector("#embed .meta")
        page.click("#embed summary")
        command = page.locator("#embed pre").inner_text()
        assert "sesame" not in command
        assert "LITEBERT_API_KEY" in command


def test_the_command_below_a_result_is_the_same_request(tiny_server, open_page):
    import json
    import shlex

    page = open_page(tiny_server, "classify")
    ask(page, "classify", text='it\'s "Anna"\nslept $HOME')
    page.click("#classify summary")
    words = shlex.split(page.locator("#classify pre").inner_text().replace("\\\n", " "))
    assert words[0] == "curl"
    assert f"{tiny_server.base_url}/classify" in words
    body = json.loads(words[words.index("-d") + 1])
    answer = tiny_server.post("/classify", json=body)
    assert answer.json()["results"][0]["label"] == page.locator("#classify .big").inner_text()


def test_the_endpoints_page(tiny_server, open_page):
    page = open_page(tiny_server, "fill_mask")
    page.click("a.endpoints")
    assert page.locator("h1").inner_text() == "Endpoints"
    paths = page.evaluate("fetch('openapi.json').then(answer => answer.json())")["paths"]
    assert len(paths) > 10
    assert page.locator("h2").count() == sum(map(len, paths.values()))
    assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderRadius") != "0px", (
        "styled by our own file"
    )


def switch(page, ability, model):
    """Choose a model, and wait for its answer."""
    with page.expect_response(lambda answer: f'"{model}"' in (answer.request.post_data or "")) as answered:
        page.select_option(f"#{ability}-model", model)
    page.wait_for_selector(f"#{ability} .result:not([aria-busy])")
    return answered.value.request.post_data_json


def test_examples_follow_the_language_of_the_model(two_languages, open_page):
    page = open_page(two_languages, "fill_mask")
    text, examples = page.locator("#fill-text"), page.locator(".example")
    english = text.input_value()
    assert english == page_examples(page)["en"]["fill_mask"][0]["text"]
    assert (text.get_attribute("lang"), examples.first.get_attribute("lang")) == ("en", "en")
    with page.expect_response("**/fill-mask"):
        examples.nth(1).click()
    sent = switch(page, "fill_mask", "ko-pretraining")
    assert text.input_value() == examples.nth(1).inner_text() == sent["text"]
    assert language_of(sent["text"].replace("[MASK]", "")) == "ko", "the second example, as before"
    assert sent["model"] == page.locator("#fill_mask .meta span").nth(1).inner_text() == "ko-pretraining"
    marked = [text, examples.first, page.locator("#fill_mask .sentence"), page.locator("#status span")]
    assert [each.get_attribute("lang") for each in marked] == ["ko"] * 4
    guesses = page.locator("#fill_mask .name").all()
    assert all(each.get_attribute("lang") == "ko" for each in guesses if language_of(each.inner_text()) == "ko")
    assert any(language_of(each.inner_text()) == "ko" for each in guesses)
    with page.expect_response("**/fill-mask"):
        examples.first.click()
    switch(page, "fill_mask", "pretraining")
    assert (text.input_value(), text.get_attribute("lang")) == (english, "en")


def test_what_somebody_wrote_is_kept_in_another_language(two_languages, open_page):
    page = open_page(two_languages, "sentence_order", refusals=True)
    page.click("#swap")
    page.fill("#order-a", "Anna slept.")
    sent = switch(page, "sentence_order", "ko-pretraining")
    assert sent["b"] == "Anna slept.", "where it was moved to"
    assert language_of(sent["a"]) == "ko"
    assert [area.get_attribute("lang") for area in page.locator("#sentences textarea").all()] == ["ko", "en"]
    page.fill("#order-a", "")
    page.select_option("#sentence_order-model", "pretraining")
    assert page.input_value("#order-a") == "", "what was emptied stays empty"
    # Options belong together: one that was changed keeps all of them.
    page.click("#tab-choose")
    page.wait_for_selector("#choose .meta")
    options = page.locator("#options input")
    english = [option.input_value() for option in options.all()]
    korean = switch(page, "choose", "ko-multiple-choice")
    assert {language_of(text) for text in (korean["passage"], korean["question"], *korean["options"])} == {"ko"}
    options.nth(1).fill("밥을 먹어서")
    page.fill("#choose-question", "누가 잤는가?")
    kept = switch(page, "choose", "multiple-choice")
    assert kept["options"] == [korean["options"][0], "밥을 먹어서", *korean["options"][2:]]
    assert kept["question"] == "누가 잤는가?"
    assert language_of(kept["passage"]) == "en"
    assert english == page_examples(page)["en"]["choose"][0]["options"]


def test_a_shuffled_example_is_still_ours(two_languages, open_page):
    page = open_page(two_languages, "coherence")
    with page.expect_response("**/coherence"):
        page.click("#shuffle")
    sent = switch(page, "coherence", "ko-pretraining")
    assert sent["text"] == page_examples(page)["ko"]["coherence"][0]["text"]
    assert page.locator("#coherence .link").first.get_attribute("lang") == "ko"
    assert not page.is_visible("#unshuffle")
    # Sentences that stood without spaces are put together without.
    chinese = page_examples(page)["zh"]["coherence"][0]["text"]
    ask(page, "coherence", text=chinese)
    assert page.get_attribute("#coherence-text", "lang") == "zh"
    with page.expect_response("**/coherence"):
        page.click("#shuffle")
    assert sorted(page.input_value("#coherence-text")) == sorted(chinese)


def test_a_server_with_a_korean_model_only(two_languages, open_page):
    korean = {n: each.predictor for n, each in two_languages.app.state.service.batchers.items() if n.startswith("ko-")}
    with running(korean) as client:
        page = open_page(client, "fill_mask")
        for ability in ABILITIES:
            page.click(f"#tab-{ability}")
            page.wait_for_selector(f"#{ability} .meta")
            fields = page.locator(f"#{ability} form :is(textarea, input)").all()
            assert {language_of(field.input_value() or "가") for field in fields} == {"ko"}
            assert {field.get_attribute("lang") for field in fields} == {"ko"}
            if ability not in ("sentence_order", "classify"):  # whose answers are a number and English labels
                assert page.locator(f'#{ability} .result [lang="ko"]').count() > 0, ability


def test_every_language_has_every_example(tiny_server, open_page):
    languages = page_examples(open_page(tiny_server, "embed"))
    assert set(languages) == set(get_args(Language))
    for language, abilities in languages.items():
        assert list(abilities) == list(languages["en"])
        for ability, examples in abilities.items():
            for example, english in zip(examples, languages["en"][ability], strict=True):
                assert list(example) == list(english)
                for name, text in example.items():
                    lines = text if isinstance(text, list) else text.split("\n")
                    pattern = english[name] if isinstance(text, list) else english[name].split("\n")
                    assert len(lines) == len(set(lines)) == len(pattern)
                    assert {language_of(line.replace("[MASK]", "")) for line in lines} == {language}, lines
                    assert ("[MASK]" in str(text)) == (ability == "fill_mask")
        assert len(split_sentences(abilities["coherence"][0]["text"])) == 5


def test_a_link_to_an_ability_opens_it(tiny_server, open_page):
    page = open_page(tiny_server, "tag")
    assert page.locator("#tab-tag").get_attribute("aria-selected") == "true"
    page.evaluate("location.hash = '#answer'")
    page.wait_for_selector("#answer .meta")
    page.reload()
    page.wait_for_selector("#answer .meta")
