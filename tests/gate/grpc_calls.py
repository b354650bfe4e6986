"""Calls tests/gate/grpc_service.py at the address given, in every way, and prints as JSON what came of it."""

import json
import queue
import sys

import grpc

OPTIONS = (("grpc.enable_http_proxy", 0),)
SECONDS = 20


def pairs(metadata):
    """What is told by the service and by nobody between."""
    return sorted((key, value.hex() if isinstance(value, bytes) else value)
                  for key, value in metadata or () if key.startswith("x-") and key != "x-request-id")


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return [error.code().name, error.details(), pairs(error.trailing_metadata())]
    return "no failure"


def unary(channel):
    call = channel.unary_unary("/test.Bytes/Unary")
    metadata = (("x-meta", "value"), ("x-blob-bin", b"\x01\x02"))
    answer, state = call.with_call(b"hello", timeout=SECONDS, metadata=metadata)
    return [answer.hex(), pairs(state.initial_metadata()), pairs(state.trailing_metadata()), state.code().name]


def large(channel):
    message = bytes(range(256)) * 12_000
    return channel.unary_unary("/test.Bytes/Unary")(message, timeout=SECONDS) == message


def count(channel):
    call = channel.unary_stream("/test.Bytes/Count")(b"1000", timeout=SECONDS)
    numbers = [int(number) for number in call]
    return [numbers == list(range(1000)), pairs(call.trailing_metadata())]


def total(channel):
    messages = (b"x" * size for size in range(1000))
    return channel.stream_unary("/test.Bytes/Total")(messages, timeout=SECONDS).decode()


def chat(channel):
    """Each message is sent when the answer to the one before has come."""
    sending, answers = queue.Queue(), []
    sending.put(b"first")
    for answer in channel.stream_stream("/test.Bytes/Chat")(iter(sending.get, None), timeout=SECONDS):
        answers.append(answer.decode())
        sending.put({b"FIRST": b"second", b"SECOND": b"third"}.get(answer))
    return answers


def fail(channel):
    return failure(lambda: channel.unary_unary("/test.Bytes/Fail")(b"", timeout=SECONDS))


def deadline(channel):
    return failure(lambda: channel.unary_unary("/test.Bytes/Sleep")(b"", timeout=0.5))[0]


def unknown(channel):
    return failure(lambda: channel.unary_unary("/test.Bytes/Nothing")(b"", timeout=SECONDS))[0]


def main():
    with grpc.insecure_channel(sys.argv[1], options=OPTIONS) as channel:
        calls = (unary, large, count, total, chat, fail, deadline, unknown)
        print(json.dumps({call.__name__: call(channel) for call in calls}))


main()
