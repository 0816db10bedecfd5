"""chat: turns from a pipe and from a terminal, the context's end, Ctrl-C."""
import os
import pty
import signal
import subprocess
import time

import harness


class Pipe(harness.ProgramTest):
    def chat(self, *args, stdin, **options):
        return self.run_ok("chat", self.model(), "--temp", "0", "--max-tokens", "12", *args, stdin=stdin, **options)

    def test_each_line_is_a_turn(self):
        result = self.chat(stdin="hello\nhow are you\n")
        reports = [line for line in result.errors.splitlines() if line.startswith("[prompt ")]
        self.assertEqual(len(reports), 2, result.errors)
        self.assertNotIn("> ", result.errors)
        result.stdout.decode("utf-8")

    def test_the_last_line_needs_no_newline_and_empty_ones_are_no_turns(self):
        result = self.chat(stdin="\n\nhello")
        self.assertEqual(result.errors.count("[prompt "), 1)

    def test_no_input_is_no_turn(self):
        result = self.chat(stdin="")
        self.assertEqual(result.stdout, b"")

    def test_the_second_turn_reuses_the_first(self):
        result = self.chat("--system", "be brief", stdin="hello\nmore\n")
        second = [line for line in result.errors.splitlines() if line.startswith("[prompt ")][1]
        words = second.replace(",", "").split()
        self.assertLess(int(words[3]), int(words[1]), second)  # "[prompt 55 tokens 12 of them new ..."

    def test_reset_starts_anew(self):
        once = self.chat(stdin="hello\n").stdout
        result = self.chat(stdin="hello\n/reset\nhello\n")
        self.assertEqual(result.stdout, once + once)

    def test_quit_leaves(self):
        result = self.chat(stdin="hello\n/quit\nhello\n")
        self.assertEqual(result.errors.count("[prompt "), 1)

    def test_a_full_context_drops_the_oldest_turns(self):
        result = self.chat("--context", "96", stdin="tell me something about birds\n" * 6)
        self.assertEqual(result.errors.count("[prompt "), 6, result.errors)
        self.assertIn("dropped", result.errors)

    def test_a_message_longer_than_the_context_is_refused_and_the_chat_goes_on(self):
        result = self.chat("--context", "64", stdin="x" * 200 + "\nhello\n")
        self.assertEqual(result.errors.count("[prompt "), 1, result.errors)
        self.assertIn("does not fit", result.errors)

    def test_one_line_is_one_turn_and_one_message_however_long(self):
        for size in (1 << 20, (1 << 20) + 5, (1 << 22) + 1, 1 << 23):
            with self.subTest(size=size):
                result = self.chat(stdin="x " * (size // 2) + "x" * (size % 2) + "\nhello\n")
                self.assertEqual(result.errors.count("[prompt "), 1, result.errors)
                refused = [line for line in result.errors.splitlines() if line.startswith("linnet: chat:")]
                self.assertEqual(len(refused), 1, result.errors)

    def test_a_closed_standard_input_ends_the_chat(self):
        for args in (["chat", self.model()], ["tokenize", self.model()]):
            with self.subTest(command=args[0]):
                process = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh"] + harness.PROGRAM + args, timeout=60,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment())
                self.assertEqual(process.returncode, 0 if args[0] == "chat" else 1, process.stderr)
                self.assertEqual(process.stdout, b"")

    def test_a_context_that_holds_no_conversation_is_refused_at_once(self):
        for context in ("1", "4"):
            self.run_fails("chat", self.model(), "--context", context, stdin="hello\n",
                           contains=["context is too small", "--context", context])

    def test_a_context_beyond_the_training_is_noted(self):
        self.assertIn("trained for", self.chat("--context", "257", stdin="hello\n").errors)
        self.assertNotIn("trained for", self.chat("--context", "256", stdin="hello\n").errors)

    def test_without_a_template_lines_are_continued(self):
        result = self.run_ok("chat", self.model(chat_template=False), "--max-tokens", "5", stdin="hello\n")
        self.assertIn("no chat template", result.errors)

    def test_a_reader_that_left_is_a_failure(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as closed:
            result = self.run_program("chat", self.model(), "--max-tokens", "5", stdin=b"hello\n", stdout=closed)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Broken pipe", result.errors)


class Terminal(harness.ProgramTest):
    def open_chat(self, *args):
        """The program on a terminal of its own; its stderr comes back through a pipe."""
        terminal, its_side = pty.openpty()
        process = subprocess.Popen(harness.PROGRAM + ["chat", self.model(), *args], stdin=its_side,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment())
        os.close(its_side)
        self.addCleanup(os.close, terminal)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, terminal

    def read_until(self, process, text):
        seen = b""
        while text.encode() not in seen:
            part = os.read(process.stderr.fileno(), 4096)
            self.assertTrue(part, "expected %r, found only %r" % (text, seen))
            seen += part
        return seen.decode("utf-8", "replace")

    def test_commands_and_the_end_of_input(self):
        process, terminal = self.open_chat("--max-tokens", "5")
        self.read_until(process, "> ")
        os.write(terminal, b"/help\n/dance\nhello\n")
        self.assertIn("no such command", self.read_until(process, "[prompt "))
        os.write(terminal, b"\x04")
        self.assertEqual(process.wait(timeout=60), 0)

    def test_two_interrupts_at_the_prompt_leave(self):
        process, _ = self.open_chat()
        self.read_until(process, "> ")
        process.send_signal(signal.SIGINT)
        self.read_until(process, "Ctrl-C again")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 0)

    def test_an_interrupt_stops_the_answer_and_not_the_program(self):
        process, terminal = self.open_chat("--context", "200000", "--max-tokens", "190000", "--temp", "0")
        self.read_until(process, "> ")
        os.write(terminal, b"hello\n")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        seen = self.read_until(process, "context ")
        if "[stopped]" not in seen:
            self.skipTest("the answer ended by itself before the signal")
        os.write(terminal, b"/quit\n")
        self.assertEqual(process.wait(timeout=60), 0)


if __name__ == "__main__":
    harness.main()
