#!/usr/bin/env python3
"""A conversation with a .linnet model through the C API (linnet.h), with nothing but Python's ctypes.

  LINNET_LIBRARY=build/release/lib/liblinnet.so examples/python/chat.py MODEL.linnet [SYSTEM PROMPT]
"""
import ctypes
import ctypes.util
import os
import sys
from ctypes import byref, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

PARSE_SPECIAL, TEXT_START, CONTINUES = 2, 4, 2  # LINNET_ENCODE_PARSE_SPECIAL, ..._TEXT_START, LINNET_DECODE_CONTINUES
BUFFER_TOO_SMALL = 9
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "linnet")
try:
    LIBRARY = ctypes.CDLL(os.environ.get("LINNET_LIBRARY") or ctypes.util.find_library("linnet") or "liblinnet.so.0")
except OSError as failure:
    sys.exit("chat.py: %s; install Linnet or set LINNET_LIBRARY" % failure)
LIBRARY.linnet_session_remaining.restype = c_uint32


class Error(ctypes.Structure):
    _fields_ = [("status", c_int32), ("reserved", c_int32), ("value", c_int64), ("message", c_char * 1280)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("cache_folder", c_char_p), ("progress", c_void_p), ("context", c_void_p)]


class SamplerOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float),
                ("min_p", c_float), ("repetition_penalty", c_float), ("penalty_window", c_uint32), ("seed", c_uint64)]


class Message(ctypes.Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p)]


def call(name, *arguments, may_be_too_small=False):
    """Calls a function, whose last parameter is the linnet_error."""
    error = Error()
    status = getattr(LIBRARY, name)(*arguments, byref(error))
    if status != 0 and not (may_be_too_small and status == BUFFER_TOO_SMALL):
        raise RuntimeError(error.message.decode("utf-8", "replace"))


def make(name, *arguments):
    """Calls a function that makes a handle."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def fill(name, *arguments, kind):
    """Calls a function that fills a buffer, first to learn its size. Texts end with a NUL that is not counted."""
    size = c_size_t()
    call(name, *arguments, None, c_size_t(0), byref(size), may_be_too_small=True)
    buffer = (kind * (size.value + 1))()
    call(name, *arguments, buffer, c_size_t(len(buffer)), byref(size))
    return buffer[:size.value]


def render(model, messages):
    array = (Message * len(messages))(*[Message(*message) for message in messages])
    return fill("linnet_chat_render", model, array, c_size_t(len(array)), None, kind=c_char)


class Chat:
    def __init__(self, path, system):
        self.model = make("linnet_model_open", os.fsencode(path), None)
        load = LoadOptions(sizeof(LoadOptions), os.fsencode(os.environ.get("LINNET_CACHE") or CACHE))
        call("linnet_model_load", self.model, byref(load))
        sampling = SamplerOptions(sizeof(SamplerOptions))
        call("linnet_model_sampler_defaults", self.model, byref(sampling))
        self.sampler = make("linnet_sampler_create", self.model, byref(sampling))
        self.session = make("linnet_session_create", self.model, None)
        self.context = LIBRARY.linnet_session_remaining(self.session)
        self.messages = [(b"system", os.fsencode(system))] if system else []
        self.first = len(self.messages)  # messages before it are never dropped
        try:
            self.has_template = bool(render(self.model, [(b"user", b"a")]))
        except RuntimeError as error:
            print("chat.py: %s; lines are continued as plain text" % error, file=sys.stderr)
            self.has_template = False

    def prompt(self):
        """The conversation as ids; the oldest turns are dropped until a quarter of the context is free."""
        while True:
            text = (render(self.model, self.messages) if self.has_template
                    else b"".join(content for _, content in self.messages))
            flags = PARSE_SPECIAL if self.has_template else TEXT_START
            ids = fill("linnet_tokenize", self.model, text, c_size_t(len(text)), c_uint32(flags), kind=c_int32)
            if len(ids) <= self.context * 3 // 4 or len(self.messages) <= self.first + 1:
                return (c_int32 * len(ids))(*ids)
            del self.messages[self.first:self.first + 2]

    def answer(self, line):
        """Yields the answer in pieces of whole characters."""
        self.messages.append((b"user", line.encode()))
        ids, said = self.prompt(), b""
        call("linnet_session_set_prompt", self.session, ids, c_size_t(len(ids)), None, None, None)
        decoder = make("linnet_decoder_create", self.model, c_uint32(0 if self.has_template else CONTINUES))
        token, text = c_int32(), c_char_p()
        while True:
            call("linnet_sampler_sample", self.sampler, self.session, byref(token))
            if LIBRARY.linnet_model_is_end(self.model, token):
                break
            call("linnet_decoder_push", decoder, token, byref(text), None)
            yield text.value.decode()
            said += text.value
            if LIBRARY.linnet_session_remaining(self.session) == 0:
                break
            call("linnet_session_decode", self.session, token)
        call("linnet_decoder_flush", decoder, byref(text), None)
        yield text.value.decode()
        LIBRARY.linnet_decoder_free(decoder)
        self.messages.append((b"assistant", said + text.value))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        chat = Chat(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "")
        for line in sys.stdin:
            for piece in chat.answer(line.rstrip("\n")):
                print(piece, end="", flush=True)
            print()
    except RuntimeError as failure:
        sys.exit("chat.py: %s" % failure)
