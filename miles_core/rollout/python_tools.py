"""Typed Python functions as tools: their definitions, and calls whose every failure becomes a text for the model."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_json

from miles_core.contracts.component import load_attribute
from miles_core.contracts.lifecycle import Clock
from miles_core.errors import RequestError
from miles_core.types.task import ToolDefinition

LEAVING_SECONDS = 0.5
"""What a coroutine that was cancelled gets for cleaning up. One that goes on is left behind."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told of a call. A failure's text begins with `error: `."""

    text: str
    failed: bool = False


class PythonTool:
    """A function with typed parameters, plain or async. Its name is the tool's, its docstring the description; the
    parameters' JSON schema is pydantic's, so `Annotated[int, Field(description=…, ge=0)]` says more, and is checked."""

    def __init__(self, function: Callable[..., Any], where: str = "") -> None:
        """Raises RequestError, at `where`, for what is no function or has parameters that cannot be given by name."""
        if not callable(function):
            raise RequestError(f"a tool is a function, not {type(function).__name__}", where=where)
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._arguments = _arguments_model(self.name, function, where)
        self.definition: ToolDefinition = {"type": "function", "function": self._describe()}

    async def call(self, arguments: str, seconds: float, clock: Clock) -> ToolResult:
        """The result of a call with arguments as JSON text. A plain function runs in a thread of its own; one that is
        still running after `seconds` is left behind there. An exception is a result. Cancelling it leaves too."""
        try:
            given = self._arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return _failure("; ".join(_sentence(each) for each in error.errors(include_url=False)))
        running = asyncio.ensure_future(self._run({name: getattr(given, name) for name in type(given).model_fields}))
        alarm = asyncio.ensure_future(clock.sleep(seconds))
        try:
            await asyncio.wait({running, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return _failure(f"no result after {seconds:g} seconds")
            return ToolResult(_text(running.result()))
        except (Exception, SystemExit) as error:  # a tool is anybody's code: its failure is the model's to read
            return _failure(f"{type(error).__name__}: {error}")
        finally:
            running.cancel()
            alarm.cancel()
            await asyncio.wait({running, alarm}, timeout=LEAVING_SECONDS)

    async def _run(self, arguments: dict[str, Any]) -> Any:
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(**arguments)
            return await _in_thread(self._function, arguments)
        except SystemExit as error:  # would end the event loop
            raise RuntimeError(f"the tool called sys.exit({error.code!r})") from error

    def _describe(self) -> dict[str, Any]:
        description = inspect.getdoc(self._function)
        schema = _without_titles(self._arguments.model_json_schema())
        schema.pop("description", None)
        return {"name": self.name, **({"description": description} if description else {}), "parameters": schema}


def load_tools(paths: tuple[str, ...]) -> dict[str, PythonTool]:
    """Name -> tool, in order, for `module:function` paths. Raises RequestError for what cannot be a tool, and for two
    of one name."""
    tools: dict[str, PythonTool] = {}
    for path in paths:
        try:
            function = load_attribute(path)
        except (ImportError, AttributeError, ValueError) as error:
            raise RequestError(f"tool {path!r} is not there: {error}", mend="name it as module:function") from error
        tool = PythonTool(function, where=path)
        if tool.name in tools:
            raise RequestError(f"two tools have the name {tool.name!r}", where=path)
        tools[tool.name] = tool
    return tools


def _arguments_model(name: str, function: Callable[..., Any], where: str) -> type[BaseModel]:
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, NameError, ValueError) as error:
        raise RequestError(f"the parameters of tool {name!r} cannot be read: {error}", where=where) from error
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise RequestError(f"parameter {parameter} of tool {name!r} cannot be given by name", where=where)
        if parameter.name not in hints:
            raise RequestError(
                f"parameter {parameter.name!r} of tool {name!r} has no type", where=where, mend="annotate it"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    try:
        with warnings.catch_warnings(action="ignore"):  # a parameter may be called `copy`, as a method of models is
            config = ConfigDict(extra="forbid", protected_namespaces=())
            return create_model(name, __config__=config, **fields)
    except Exception as error:  # pydantic has several for types without a schema and for names that it keeps for itself
        raise RequestError(f"the parameters of tool {name!r} have no JSON schema: {error}", where=where) from error


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """A daemon of its own, not one of a pool: a function that hangs must neither use a pool up nor keep the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = context.run(function, **arguments)
        except BaseException as error:
            failure = RuntimeError(str(error)) if isinstance(error, StopIteration) else error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name=f"tool {function.__name__}", daemon=True).start()
    return await done


def _text(result: Any) -> str:
    return result if isinstance(result, str) else to_json(result, fallback=str).decode()


def _failure(what: str) -> ToolResult:
    return ToolResult(f"error: {what}", failed=True)


def _sentence(problem: Any) -> str:
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


def _without_titles(schema: Any) -> Any:
    """pydantic's titles repeat the names, and cost tokens."""
    if isinstance(schema, dict):
        return {
            key: {name: _without_titles(each) for name, each in value.items()}
            if key in ("properties", "$defs")
            else _without_titles(value)
            for key, value in schema.items()
            if key != "title"
        }
    return [_without_titles(each) for each in schema] if isinstance(schema, list) else schema
