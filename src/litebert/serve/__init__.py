"""The server: every ability of the Predictor over HTTP, and a page to try them. Needs the extra [serve].

python -m litebert serve                      the default model at http://127.0.0.1:8000
create_app({"default": Predictor()})          the same as an ASGI app, for another server
"""

from litebert.serve.config import ServeConfig

__all__ = ["ServeConfig"]
