"""An ability is declared once: its function's signature and docstring reach Python, the command line and HTTP."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import httpx
import numpy as np
import pytest
from small_models import predictor_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.model.hub import save_model
from litebert.predict import abilities
from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Limits, Probability, Result, ability
from litebert.predict.job import Inputs, Steps
from litebert.predict.predictor import Predictor


@dataclass(frozen=True)
class Loudness(Result):
    """How loud a text is."""

    share: Annotated[Probability, "Of its letters that are capitals."]
    shouted: str
    tokens: int


@ability(outputs=["mean"], examples=[{"text": "HELLO there"}], also=["yell"])
def shout(
    inputs: Inputs,
    text: Annotated[str, "The text to shout."],
    times: Annotated[int, "How often.", Limits(1, served=3)] = 2,
    mark: Annotated[Literal["!", "?"], "What ends it."] = "!",
    quiet: Annotated[bool, "Not so loud."] = False,
) -> Steps[Loudness]:
    """Shout a text."""
    ids = inputs.encode(text)
    yield [inputs.request(ids, want=("mean",))]
    loud = text.lower() if quiet else text.upper()
    share = sum(letter.isupper() for letter in text) / len(text)
    return Loudness(share, " ".join([loud] * times) + mark, len(ids))


@pytest.fixture
def added(monkeypatch):
    """The one entry."""
    monkeypatch.setitem(abilities.ABILITIES, "shout", shout)


def test_an_ability_from_outside_in_python(added):
    predictor = predictor_of("encoder")
    assert "shout" in predictor.abilities
    assert predictor.shout("Anna").shouted == "ANNA ANNA!"
    assert predictor.shout("Anna", 1, "?").shouted == "ANNA?"
    assert [each.shouted for each in predictor.shout(["a", "b"], quiet=True)] == ["a a!", "b b!"]
    with pytest.raises(InputError, match="times: must be a whole number >= 1, not 0"):
        predictor.shout("Anna", times=0)
    with pytest.raises(InputError, match="shout takes no 'tmes'; did you mean 'times'"):
        predictor.shout("Anna", tmes=1)
    with pytest.raises(InputError, match=r"mark: '\.' is not one of: !, \?"):
        predictor.shout("Anna", mark=".")
    with pytest.raises(InputError, match="quiet: must be True or False, not 'no'"):
        predictor.shout("Anna", quiet="no")
    assert str(inspect.signature(predictor.shout)) == "(text, times=2, mark='!', quiet=False)"
    assert predictor.shout.__doc__.startswith("Shout a text.\n\ntext: The text to shout.\ntimes: How often.")


def test_an_ability_from_outside_on_the_command_line(added, cli, tmp_path):
    save_model(small_model("encoder"), tmp_path / "model")
    english().save(tmp_path / "model")
    model = ("--model", tmp_path / "model", "--device", "cpu", "--threads", 1)
    done = cli("predict", "shout", "Anna", "Ben", *model)
    assert done.code == 0, done
    assert "shouted: ANNA ANNA!" in done.out
    done = cli("predict", "shout", "Anna", "--times", 1, "--mark", "?", "--quiet", "--json", *model)
    assert json.loads(done.out)["shouted"] == "anna?"
    (tmp_path / "x.csv").write_text("text\nanna\n")
    done = cli("predict", "shout", "--file", tmp_path / "x.csv", "--out", tmp_path / "y.csv", *model)
    assert (tmp_path / "y.csv").read_text().splitlines()[0] == "text,share,shouted,tokens", done
    shown = " ".join(cli("predict", "shout", "--help").out.split())
    assert "Shout a text." in shown
    assert "How often." in shown
    assert "[default: 2]" in shown
    assert "did you mean 'shout'?" in cli("predict", "yell").err


def test_an_ability_from_outside_over_http(added):
    import asyncio

    from litebert.serve.app import create_app

    async def talk():
        app = create_app({"model": predictor_of("encoder")})
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            answer = await client.post("/shout", json={"text": ["Anna", "Ben"], "times": 1})
            refused = [
                await client.post("/shout", json=body) for body in ({"text": "a", "times": 4}, {"text": "a", "x": 1})
            ]
            return answer, refused, (await client.get("/openapi.json")).json(), (await client.get("/docs")).text

    answer, refused, described, docs = asyncio.run(talk())
    assert answer.json() == {
        "model": "model",
        "results": [
            {"share": 0.25, "shouted": "ANNA!", "tokens": len(english().encode("Anna"))},
            {"share": pytest.approx(1 / 3), "shouted": "BEN!", "tokens": len(english().encode("Ben"))},
        ],
    }
    assert [each.status_code for each in refused] == [422, 422]
    fields = described["components"]["schemas"]["Shout"]["properties"]
    assert (fields["times"]["default"], fields["times"]["minimum"], fields["times"]["maximum"]) == (2, 1, 3)
    assert fields["times"]["description"] == "How often."
    assert fields["mark"]["enum"] == ["!", "?"]
    assert described["components"]["schemas"]["Loudness"]["properties"]["share"]["maximum"] == 1
    assert described["paths"]["/shout"]["post"]["description"] == "Shout a text."
    assert "/shout" in docs


def test_an_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="a Predictor has no 'fil_mask'; did you mean 'fill_mask'"):
        predictor_of("encoder").fil_mask  # noqa: B018
    with pytest.raises(AttributeError, match=r"a Predictor has no 'qa'; it has fill_mask, "):
        predictor_of("encoder").qa  # noqa: B018


def test_what_type_checkers_see_is_what_there_is():
    """methods.pyi has every ability with its parameters in their order, and marks the same ones as optional."""
    stub = ast.parse((Path(abilities.__file__).parent / "methods.pyi").read_text())
    (methods,) = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    found = {}
    for node in methods.body:
        arguments = node.args.args[1:]
        optional = [each.arg for each in arguments[len(arguments) - len(node.args.defaults) :]]
        said = found.setdefault(node.name, ([each.arg for each in arguments], optional))
        assert said == ([each.arg for each in arguments], optional), f"{node.name}: overloads differ"
    for name, entry in ABILITIES.items():
        parameters = entry.parameters.values()
        assert found.pop(name) == ([each.name for each in parameters], [e.name for e in parameters if not e.required])
    assert not found


def test_every_ability_says_what_it_is():
    for name, entry in ABILITIES.items():
        assert name == entry.name
        assert entry.about
        assert entry.examples
        assert all(parameter.about for parameter in entry.parameters.values()), name
        assert callable(getattr(Predictor, name))
        assert issubclass(entry.result, Result)


def test_numbers_may_be_numpys():
    predictor = predictor_of("pretraining")
    assert len(predictor.fill_mask("a [MASK]", top=np.int64(2)).masks[0].candidates) == 2
    assert predictor.fill_mask("a [MASK] [MASK]", joint=np.bool_(True)).joint
    for wrong in (True, 2.0, "2", float("nan")):
        with pytest.raises(InputError, match="top: must be a whole number >= 1"):
            predictor.fill_mask("a [MASK]", top=wrong)
