"""Pages in a real Chromium."""

from __future__ import annotations

import pytest


@pytest.fixture
def open_page(browser):
    contexts = []

    def open_at(address, wait="[role=tab]", block=None, **options):
        context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        if block is not None:
            page.route(block, lambda route: route.abort())
        page.goto(address)
        if wait:
            page.wait_for_selector(wait)
        return page

    yield open_at
    for context in contexts:
        context.close()
