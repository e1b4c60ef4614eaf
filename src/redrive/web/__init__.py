"""The server: publishing and operating over HTTP, from any language.

A request passes, in this order:

guard          is it for us, and not from a foreign web page?          `guard.py`
identity       who asks, by token, session or a proxy's word?          `identity.py`
caller         may they do this at all?                                `caller.py`
table          which route, what does it take, what does it answer?    `table.py`, `requests.py`
endpoint       the operation, limited to what is the caller's          `endpoints/`
problem        or why not, in a sentence                               `problem.py`

`api.py` leads through it, `openapi.py` describes it, `application.py` puts it together.
"""
