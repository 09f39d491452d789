"""The server: every ability of the Predictor over HTTP, and a page to try them. Needs the extra [serve].

python -m litebert serve                      the default model at http://127.0.0.1:8000
create_app({"default": Predictor()})          the same as an ASGI app, for another server

server -> app, compat    the process and its sockets; our endpoints, and those of other servers' clients
gate -> service          limits and keys; from a request to the bytes of its answer (schemas: their forms)
batcher -> queue         requests that wait -> batches for the model
fronts                   several processes that answer for the one with the models
telemetry, page, static  metrics and logs; the page, with this server or without one
"""

from litebert.serve.config import ServeConfig

__all__ = ["ServeConfig"]
