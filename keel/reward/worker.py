"""Runs a user's reward function in a process of its own.

Usage: python3 -c <this text> FILE FUNCTION CALL_SECONDS, with a socket as descriptor 3.
Messages are a 4-byte little-endian length and JSON. Standard output and error belong to the user's
code; the protocol never uses them.
"""
import importlib.util
import inspect
import json
import math
import os
import signal
import socket
import struct
import sys
import traceback


def receive(connection):
    def exactly(count):
        data = bytearray()
        while len(data) < count:
            part = connection.recv(min(count - len(data), 1 << 20))
            if not part:
                os._exit(0)  # the program that started us is gone
            data += part
        return bytes(data)

    return json.loads(exactly(struct.unpack("<I", exactly(4))[0]))


def send(connection, message):
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(data)) + data)


def describe(error, path):
    """The traceback's last line and the deepest line of the user's file."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    text = text[-1] if text else type(error).__name__
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return text[:500] + (f" ({os.path.basename(path)}:{lines[-1]})" if lines else "")


def load(path, name):
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("keel_user_reward", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        found = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == spec.name]
        raise AttributeError(f"there is no function '{name}'; the file defines {', '.join(found) or 'none'}")
    return function


def convention_of(function):
    names = list(inspect.signature(function).parameters)
    if "solution_str" in names:
        return "verl"
    if "completions" in names or "prompts" in names:
        return "trl"
    raise TypeError(
        f"cannot tell how to call a function of ({', '.join(names)}); expected "
        "(data_source, solution_str, ground_truth, extra_info=None) or (prompts, completions, **columns)"
    )


def accepted(function, arguments):
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return arguments
    names = {p.name for p in parameters}
    return {k: v for k, v in arguments.items() if k in names}


def finish(value):
    if inspect.isawaitable(value):
        import asyncio

        async def wait():
            return await value

        return asyncio.run(wait())
    return value


def number(value):
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"the score is {value}")
    return value


def plain(value):
    try:
        json.dumps(value, allow_nan=False)
        return value
    except (TypeError, ValueError):
        return str(value)


def call_verl(function, sample):
    keys = ("data_source", "solution_str", "ground_truth", "extra_info")
    value = finish(function(**accepted(function, {k: sample[k] for k in keys})))
    if isinstance(value, dict):
        extra = {str(k): plain(v) for k, v in value.items() if k != "score"}
        return number(value["score"]), extra
    return number(value), {}


def call_trl(function, samples):
    arguments = {key: [s[key] for s in samples] for key in ("prompts", "completions", "completion_ids")}
    columns = {key for s in samples for key in s["columns"]}
    for key in columns - set(arguments):
        arguments[key] = [s["columns"].get(key) for s in samples]
    values = list(finish(function(**accepted(function, arguments))))
    if len(values) != len(samples):
        raise ValueError(f"returned {len(values)} scores for {len(samples)} completions")
    return [(None if v is None else number(v), {}) for v in values]


def main():
    path, name, call_seconds = os.path.abspath(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    connection = socket.socket(fileno=3)
    try:
        function = load(path, name)
        convention = convention_of(function)
    except BaseException as error:
        send(connection, {"error": describe(error, path)})
        return
    send(connection, {"convention": convention})
    pid = os.getpid()
    while True:
        samples = receive(connection)["samples"]
        # If we loop for ever and nobody is left to stop us, the kernel does.
        signal.setitimer(signal.ITIMER_REAL, 2 * call_seconds + 5)
        try:
            if convention == "verl":
                reply = {"scores": [call_verl(function, s) for s in samples]}
            else:
                reply = {"scores": call_trl(function, samples)}
        except BaseException as error:
            reply = {"error": describe(error, path)}
        if os.getpid() != pid:
            os._exit(0)  # a child that the user's code forked
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(connection, reply)


main()
