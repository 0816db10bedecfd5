"""What a person with a device does: copies the program and a model to it, converts, plans, chats. Also run for other
machines' programs, under an emulator, once for each CPU (LINNET_DEVICE_CPUS, QEMU's names separated by spaces)."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

import harness
import tiny_checkpoint

LARGEST_STATIC_PROGRAM = 8 << 20
MACHINES = {40: "armv7", 62: "x86_64", 183: "aarch64"}  # e_machine of an ELF header
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
LARGEST_PAGE = {"armv7": 16384, "aarch64": 65536, "x86_64": 4096}  # of Linux kernels: 16 KiB is a Raspberry Pi 5's


def segments(data):
    """The type and alignment of each of an ELF file's program headers."""
    assert data[:4] == b"\x7fELF", data[:4]
    if data[4] == 2:
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        type_and_alignment = "<I44xQ"
    else:
        offset, = struct.unpack_from("<I", data, 28)
        size, count = struct.unpack_from("<HH", data, 42)
        type_and_alignment = "<I24xI"
    return [struct.unpack_from(type_and_alignment, data, offset + size * i) for i in range(count)]


class Program(unittest.TestCase):
    def setUp(self):
        if not os.environ.get("LINNET_DEVICE_STATIC"):
            self.skipTest("this build is not the static one")
        with open(harness.PROGRAM[-1], "rb") as file:
            self.data = file.read()

    def test_it_needs_no_other_file(self):
        types = [kind for kind, _ in segments(self.data)]
        self.assertNotIn(PT_INTERP, types, "it wants a dynamic linker")
        self.assertNotIn(PT_DYNAMIC, types, "it wants shared libraries")

    def test_it_runs_with_the_largest_pages_of_its_machine(self):
        alignments = [alignment for kind, alignment in segments(self.data) if kind == PT_LOAD]
        self.assertGreaterEqual(len(alignments), 2)
        self.assertGreaterEqual(min(alignments), LARGEST_PAGE[os.environ["LINNET_DEVICE_MACHINE"]])

    def test_it_is_small_and_stripped(self):
        self.assertLess(len(self.data), LARGEST_STATIC_PROGRAM)
        self.assertFalse(b"\0.symtab\0" in self.data, "it has a symbol table")

    def test_it_is_for_this_target(self):
        machine, = struct.unpack_from("<H", self.data, 18)
        self.assertEqual(MACHINES[machine], os.environ["LINNET_DEVICE_MACHINE"])


class Device(unittest.TestCase):
    """A folder with the program and a checkpoint, an environment with nothing but the home folder."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="linnet_device_")
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(harness.PROGRAM[-1], os.path.join(self.folder, "linnet"))
        self.environment = {"HOME": self.folder}
        self.stories = os.path.join(harness.SHARED, "real", "stories260k")
        source = os.path.join(self.folder, "checkpoint")
        if os.path.isdir(self.stories):
            shutil.copytree(self.stories, source)
        else:
            print("stories260k is not in LINNET_SHARED_DIR: with the project's own tiny checkpoint instead")
            tiny_checkpoint.write_checkpoint(source, chat_template=False, tokenizer=True)
            self.stories = None

    def run_here(self, *args, stdin=None):
        command = harness.PROGRAM[:-1] + ["./linnet", *args]
        result = subprocess.run(command, cwd=self.folder, env=self.environment, timeout=300, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, input=stdin.encode() if stdin else b"")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def greedy(self, weights):
        self.run_here("convert", "checkpoint", "-o", weights + ".linnet", "--weights", weights)
        planned = json.loads(self.run_here("plan", weights + ".linnet", "--context", "256", "--json"))
        self.assertGreater(planned["kv_cache_bytes"], 0)
        return self.run_here("chat", weights + ".linnet", "--temp", "0", "--context", "256", "--max-tokens", "40",
                             stdin="Once upon a time\n")

    def check_all_weights(self):
        for weights in ("f32", "q8", "q4"):
            with self.subTest(weights=weights):
                answer = self.greedy(weights)
                if self.stories is not None:
                    # Without a chat template a line is continued as plain text. 4 bits lead such a small model
                    # elsewhere after the first sentence.
                    with open(os.path.join(self.stories, "expected_greedy.txt"), encoding="utf-8") as file:
                        expected = file.read()
                    length = 60 if weights == "q4" else 100
                    self.assertEqual(("Once upon a time" + answer)[:length], expected[:length])

    def test_convert_plan_and_chat_with_nothing_else_there(self):
        for cpu in os.environ.get("LINNET_DEVICE_CPUS", "").split() or [None]:
            with self.subTest(cpu=cpu):
                if cpu:
                    self.environment["QEMU_CPU"] = cpu
                self.check_all_weights()
        left = set(os.listdir(self.folder)) - {"linnet", "checkpoint", "f32.linnet", "q8.linnet", "q4.linnet", ".cache"}
        self.assertEqual(left, set())


if __name__ == "__main__":
    harness.main()
