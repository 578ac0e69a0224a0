"""Everything that goes wrong, in each dialect: told in the client's own shape, counted, and the session as it was."""

from __future__ import annotations

import pytest
from serving import call, check_against_log, served, user

from miles_core.session.store import Limits
from miles_core.testing import ScriptedEngine, make_attempt

HI = [104, 105, 10]

BODIES = {
    "/chat/completions": lambda text: {"messages": [user(text)]},
    "/responses": lambda text: {"input": text},
    "/messages": lambda text: {"messages": [user(text)], "max_tokens": 9},
    "/inference/v1/generate": lambda text: {"token_ids": [*text.encode(), 10]},
}
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    409: "invalid_request_error",
    410: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    504: "timeout_error",
}


async def no_json(server, address, engine, body):
    return await call(address, path=body.path, data=b'{"messages": [')


async def no_object(server, address, engine, body):
    return await call(address, path=body.path, data=b"[1]")


async def foreign(server, address, engine, body):
    return await call(address, path=body.path, json=body("hi"), headers={"Authorization": "Bearer guessed"})


async def no_key(server, address, engine, body):
    return await call(address, path=body.path, json=body("hi"), headers={"Authorization": ""})


async def edited(server, address, engine, body):
    return await call(address, path=body.path, json=body("another beginning"))


async def hundred_megabytes(server, address, engine, body):
    return await call(address, path=body.path, data=b" " * 100_000_000)


async def dead(server, address, engine, body):
    engine.die()
    return await call(address, path=body.path, json=body("hi"))


async def fewer_logprobs(server, address, engine, body):
    engine.drop_logprobs(1)
    return await call(address, path=body.path, json=body("hi"))


async def hanging(server, address, engine, body):
    engine.hang()
    return await call(address, path=body.path, json=body("hi"))


async def closed(server, address, engine, body):
    server.store.close(address.api_key)
    return await call(address, path=body.path, json=body("hi"))


CASES = {
    no_json: (400, "malformed_json"),
    no_object: (400, "malformed_json"),
    foreign: (401, "invalid_api_key"),
    no_key: (401, "invalid_api_key"),
    edited: (409, "history_diverged"),
    hundred_megabytes: (413, "body_too_large"),
    dead: (502, "engine_failed"),
    fewer_logprobs: (502, "engine_failed"),
    hanging: (504, "engine_timeout"),
    closed: (410, "session_gone"),
}


class Body:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, text: str) -> dict:
        return BODIES[self.path](text)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_fault_is_told_in_the_clients_shape_and_counted(case, path):
    status, code = CASES[case]
    engine = ScriptedEngine(version=5)
    async with served(engine, limits=Limits(call_seconds=0.5)) as server:
        address = await server.open(make_attempt())
        session = server.store.find(address.api_key)
        body = Body(path)
        assert (await call(address, path=path, json=body("hi")))[0] == 200
        found, told, headers = await case(server, address, engine, body)
        assert found == status, told
        if path == "/messages":
            assert (told["type"], told["error"]["type"]) == ("error", ANTHROPIC_TYPES[status])
        else:
            assert told["error"]["type"].endswith("_error") and told["error"]["param"] is None
        assert told["error"]["code"] == code and len(told["error"]["message"]) > 10
        assert headers["x-should-retry"] == ("true" if status == 504 else "false")
        assert server.store.faults == {code: 1}
        check_against_log(session.collect().sequences[0], engine.log[:1])  # as it was


async def test_a_version_that_goes_back_is_no_turn():
    engine = ScriptedEngine(["one"] * 8, version=5)
    async with served(engine) as server:
        for path in ("/chat/completions", "/messages"):
            engine.go_back(5)
            address = await server.open(make_attempt())
            assert (await call(address, path=path, json=BODIES[path]("hi")))[0] == 200
            engine.go_back(3)
            history = [user("hi"), {"role": "assistant", "content": "one"}, user("go on")]
            status, told, _ = await call(address, path=path, json={"messages": history, "max_tokens": 9})
            assert status == 502 and "never go back" in told["error"]["message"]
            assert (await server.collect(address.api_key)).turns == 1
