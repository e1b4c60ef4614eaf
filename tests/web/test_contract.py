"""Whatever fits the OpenAPI document or does not, every answer is one that it describes."""

from __future__ import annotations

import pytest
import requests

from tests.web.client import Answer
from tests.web.contract import prove_answers, served

_JSON = {"content-type": "application/json"}


def test_no_answer_is_outside_the_document_and_none_is_our_failure() -> None:
    with served() as send:
        assert prove_answers(send, examples=3) > 250


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(500, {"content-type": "application/problem+json"}, b"{}"), "Server error"),
        (Answer(200, _JSON, b'{"event_id": 7}'), "schema"),
        (Answer(200, {"content-type": "text/html"}, b"<p>"), "Content-Type"),
    ],
    ids=["failure", "shape", "kind"],
)
def test_an_answer_outside_the_document_would_be_found(answer: Answer, said: str) -> None:
    def send(_: requests.PreparedRequest) -> Answer:
        return answer

    with pytest.raises(BaseException, match=said):
        prove_answers(send, examples=1)
