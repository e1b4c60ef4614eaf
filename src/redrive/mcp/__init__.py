"""The operations as tools for an assistant, which may look, and suggest what a person decides.

table         which operations are tools, and of what kind                `tools.py`
desk          one call of a tool: who, may they, what comes of it         `desk.py`
plans         what was suggested, to be carried out once                  `plans.py`
telling       what goes back: redacted, bounded, marked as strangers'     `telling.py`
server        the protocol, by the official SDK: stdio and HTTP           `server.py`

Tools are rows of the API's table, so that roles and limits of a caller hold as they do there.
"""
