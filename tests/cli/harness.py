"""Runs the program for the tests of this folder. Each test file is started as: X_test.py [EMULATOR...] PROGRAM."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import tiny_checkpoint

PROGRAM = []
SHARED = os.environ.get("LINNET_SHARED_DIR", "")
COMMANDS = ["convert", "synth", "inspect", "plan", "logits", "generate", "tokenize", "chat", "bench", "perplexity",
            "quality", "pack", "count", "trace", "verify", "cpu"]


class ProgramTest(unittest.TestCase):
    """Folders: self.folder (of the class), self.cache (the program's cache folder). Models are made once a class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="linnet_cli_")
        cls.cache = os.path.join(cls.folder, "cache")
        cls.models = {}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.folder, *names)

    @classmethod
    def environment(cls, **changes):
        env = dict(os.environ, LINNET_CACHE=cls.cache)
        env.update(changes)
        return env

    @classmethod
    def run_program(cls, *args, stdin=b"", env=None, **options):
        """Runs it to its end; stdout and stderr as bytes and text."""
        if isinstance(stdin, str):
            stdin = stdin.encode()
        options.setdefault("stdout", subprocess.PIPE)
        result = subprocess.run(PROGRAM + list(args), input=stdin, stderr=subprocess.PIPE, timeout=300,
                                env=env or cls.environment(), **options)
        result.errors = result.stderr.decode("utf-8", "replace")
        result.text = (result.stdout or b"").decode("utf-8", "replace")
        return result

    def run_ok(self, *args, **options):
        result = self.run_program(*args, **options)
        self.assertEqual(result.returncode, 0, "%s: %s" % (args, result.errors))
        return result

    def run_fails(self, *args, status=1, contains=(), **options):
        """The program ends with `status` and exactly one line on stderr."""
        result = self.run_program(*args, **options)
        self.assertEqual(result.returncode, status, "%s: %s" % (args, result.errors))
        lines = result.errors.splitlines()
        self.assertEqual(len(lines), 1, "%s: expected one line, found %s" % (args, lines))
        self.assertTrue(lines[0].startswith("linnet"), lines[0])
        for part in contains:
            self.assertIn(part, lines[0])
        return lines[0]

    @classmethod
    def model(cls, weights="f32", chat_template=True, tokenizer=True):
        """Path of the tiny model, converted at the first call."""
        key = (weights, chat_template, tokenizer)
        if key not in cls.models:
            name = "tiny_%s_%d%d" % (weights, chat_template, tokenizer)
            source = cls.path(name)
            tiny_checkpoint.write_checkpoint(source, chat_template, tokenizer)
            result = cls.run_program("convert", source, "-o", source + ".linnet", "--weights", weights)
            if result.returncode != 0:
                raise AssertionError("convert: " + result.errors)
            cls.models[key] = source + ".linnet"
        return cls.models[key]


def read_npy(path):
    """Rows of a two-dimensional little-endian f32 .npy file, after checking its header."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0, length
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}}, {})  # the format's own: a Python literal
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    rows, columns = header["shape"]
    values = data[10 + length:]
    assert len(values) == 4 * rows * columns, (len(values), rows, columns)
    return [struct.unpack("<%df" % columns, values[4 * columns * row:4 * columns * (row + 1)]) for row in range(rows)]


def main():
    # Everything but the options of unittest is the program's command line.
    arguments = sys.argv[1:]
    PROGRAM.extend(arguments)
    unittest.main(argv=sys.argv[:1], verbosity=2, module="__main__")
