"""The C test program and the Python example, on models converted here.
python_test.py CHAT_PY LIBRARY C_TEST [EMULATOR...] PROGRAM"""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import harness  # noqa: E402

CHAT, LIBRARY, C_TEST = sys.argv[1:4]
del sys.argv[1:4]


class C(harness.ProgramTest):
    def test_the_api_from_c(self):
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            result = subprocess.run(harness.PROGRAM[:-1] + [C_TEST, self.model(), folder], stdout=subprocess.PIPE,
                                    timeout=500)
            self.assertEqual(result.returncode, 0, result.stdout.decode())
            self.assertRegex(result.stdout.decode(), r"^[0-9]{3,} checks, 0 failed\n$")
            self.assertEqual(sorted(os.listdir(folder)), ["cache"])
            self.assertEqual(len(os.listdir(os.path.join(folder, "cache", "packed"))), 1)


@unittest.skipIf(len(sys.argv) > 2, "Python here is not the emulated machine's")
class PythonChat(harness.ProgramTest):
    def chat(self, *args, stdin, status=0, library=LIBRARY):
        env = self.environment(LINNET_LIBRARY=library)
        result = subprocess.run([sys.executable, CHAT, *args], input=stdin.encode(), env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return result.stdout.decode("utf-8"), result.stderr.decode()

    def test_turns_are_answered_as_by_the_program(self):
        ours, errors = self.chat(self.model(), stdin="hello\n")
        theirs = self.run_ok("chat", self.model(), "--temp", "0", "--repetition-penalty", "1", "--max-tokens", "100000",
                             stdin="hello\n")
        self.assertEqual(errors, "")
        self.assertEqual(ours, theirs.text)

    def test_a_long_conversation_goes_on(self):
        output, _ = self.chat(self.model(), "be brief", stdin="tell me something about birds\n" * 5)
        self.assertGreaterEqual(output.count("\n"), 5)

    def test_failures_are_one_line(self):
        for path, text in (("no-such.linnet", "No such file"), (CHAT, "model")):
            _, errors = self.chat(path, stdin="", status=1)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            self.assertIn(text, errors)
        _, errors = self.chat(self.model(), stdin="", status=1, library="/no/such.so")
        self.assertRegex(errors, r"^chat\.py: /no/such\.so: .*LINNET_LIBRARY\n$")
        _, errors = self.chat(self.model(tokenizer=False), stdin="hello\n", status=1)
        self.assertIn("tokenizer", errors.splitlines()[-1])

    def test_a_story_without_a_template(self):
        source = os.path.join(harness.SHARED, "real", "stories260k")
        if not os.path.isdir(source):
            self.skipTest("no " + source)
        model = self.path("stories.linnet")
        self.run_ok("convert", source, "-o", model, "--weights", "f32")
        ours, errors = self.chat(model, stdin="Once upon a time\n")
        self.assertIn("plain text", errors)
        expected = self.run_ok("generate", model, "--prompt", "Once upon a time", "-n", "100").text
        self.assertIn(ours[:100], expected)


if __name__ == "__main__":
    harness.main()
