"""The Spark recipe of docs/howto/scale.md, copied from the page, on a local Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import texts, write

from litebert.predict.predictor import Predictor

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "scale.md"


def recipe(model: Path, source: Path, out: Path) -> str:
    """The page's block with other paths."""
    code = PAGE.read_text(encoding="utf-8").split("## In Spark", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    for theirs, ours in (("/shared/model", model), ("s3a://bucket/reviews", source), ("s3a://bucket/vectors", out)):
        assert theirs in code
        code = code.replace(theirs, str(ours))
    return code


def test_the_recipe_gives_the_vectors_of_the_predictor(model, tmp_path):
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
        reason = "needs Java 17 and: pip install -c constraints.txt pyspark"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    source = write(tmp_path / "reviews.parquet", texts(60))
    (tmp_path / "recipe.py").write_text(recipe(model("encoder"), source, tmp_path / "vectors"), encoding="utf-8")
    here = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "recipe.py")]
    done = subprocess.run(command, env=os.environ | here, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "vectors").glob("*.parquet")).sort_by("id")
    assert found["id"].to_pylist() == list(range(60))
    vectors = np.array(found["vector"].to_pylist(), np.float32)
    expected = Predictor(model("encoder"), device="cpu", threads=1).embed(texts(60))
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
