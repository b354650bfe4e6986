"""A gRPC service of the four kinds of calls, over bytes instead of messages: an origin nobody here wrote.

Listens on a free port of loopback, prints it, and ends when its standard input does.
"""

import sys
import time
from concurrent import futures

import grpc

TRAILERS = (("x-checksum", "7"), ("x-blob-bin", b"\x00\xff"))


def unary(request, context):
    metadata = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-seen", metadata.get("x-meta", "")),))
    context.set_trailing_metadata(TRAILERS)
    return request + metadata.get("x-blob-bin", b"")


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()
    context.set_trailing_metadata(TRAILERS)


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def chat(requests, context):
    for request in requests:
        yield request.upper()


def fail(request, context):
    context.set_trailing_metadata(TRAILERS)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: 100 % ä")


def sleep(request, context):
    # Ends with the call: its deadline is told here too.
    left = context.time_remaining()
    while context.is_active():
        time.sleep(0.01)
    print(f"cancelled {left is not None and left < 5}", flush=True)
    return b""


CALLS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Total": grpc.stream_unary_rpc_method_handler(total),
    "Chat": grpc.stream_stream_rpc_method_handler(chat),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
}

server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Bytes", CALLS),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.read()
server.stop(None)
