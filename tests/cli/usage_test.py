"""Command lines, help, exit status."""
import json
import os

import harness


class Usage(harness.ProgramTest):
    def test_every_command_has_help_with_an_example(self):
        for command in harness.COMMANDS:
            with self.subTest(command=command):
                text = self.run_ok(command, "--help").text
                self.assertIn("Example:", text)
                self.assertIn("linnet " + command, text)

    def test_help_is_printable_text(self):
        for command in harness.COMMANDS:
            with self.subTest(command=command):
                text = self.run_ok(command, "--help").stdout
                self.assertEqual([byte for byte in text if byte != 10 and not 32 <= byte < 127], [])
        self.assertIn("f32, f16 or int8", self.run_ok("chat", "--help").text)

    def test_a_wrong_cache_type_is_told_the_right_ones(self):
        self.run_fails("generate", "m", "--ids", "1", "--kv", "foo", status=2,
                       contains=["--kv: expected f32, f16 or int8, found foo"])
        self.run_fails("count", "m", "--kv", "foo", status=2, contains=["--kv: expected f32, f16 or int8, found foo"])

    def test_help_of_an_unknown_command_is_a_usage_error(self):
        self.run_fails("info", "--help", status=2, contains=["usage:", "info"])

    def test_help_lists_every_command(self):
        text = self.run_ok("--help").text
        self.assertIn("Example:", text)
        for command in harness.COMMANDS:
            self.assertIn(command, text)

    def test_version_names_what_is_inside(self):
        text = self.run_ok("--version").text
        self.assertTrue(text.startswith("linnet "), text)
        for name in ("xnnpack", "highway", "pthreadpool", "flatbuffers"):
            self.assertIn(name, text.lower())

    def test_wrong_command_lines_are_usage_errors(self):
        for line in ("", "dance", "inspect", "inspect a b", "inspect --nonsense m", "logits m --ids 1,x -o f",
                     "logits m --ids 1,,2 -o f", "logits m --ids , -o f", "logits m --ids -1 -o f",
                     "logits m --ids 1.5 -o f", "logits m --ids 99999999999 -o f", "logits m --ids 1", "logits m -o f",
                     "generate m", "generate m --prompt a --ids 1", "generate m --ids 1 -n -5",
                     "generate m --ids 1 -n 0", "generate m --ids 1 -n x", "generate m --ids 1 --threads 0",
                     "generate m --ids 1 --threads 100000", "generate m --ids 1 --temp -1",
                     "generate m --ids 1 --temp nan", "generate m --ids 1 --top-p 2", "generate m --ids 1 --kv f64",
                     "generate m --ids 1 --context 0", "generate m --ids 1 --cpu 8086", "plan m --kv q4",
                     "plan m --context 99999999999999999999", "convert s", "convert s -o m --weights q3",
                     "convert s -o m --block 33", "convert s -o m --rotate maybe", "bench m -t 1,0", "bench m -r 0",
                     "perplexity m", "tokenize m text --file f", "chat m --max-tokens 0"):
            with self.subTest(line=line):
                message = self.run_fails(*line.split(), status=2)
                self.assertIn("usage:", message)

    def test_a_missing_file_is_named_with_the_reason(self):
        missing = self.path("no.linnet")
        for args in (["inspect", missing], ["plan", missing], ["logits", missing, "--ids", "1", "-o", self.path("o")],
                     ["generate", missing, "--ids", "1"], ["tokenize", missing, "x"], ["chat", missing],
                     ["bench", missing], ["perplexity", missing, missing], ["pack", missing],
                     ["convert", missing, "-o", self.path("o")]):
            with self.subTest(command=args[0]):
                self.run_fails(*args, contains=["linnet %s:" % args[0], missing, "No such file"])

    def test_a_directory_is_no_model(self):
        self.run_fails("inspect", self.folder, contains=[self.folder, "directory"])

    def test_bytes_that_are_no_model_are_refused(self):
        for name, content in (("empty", b""), ("text", b"hello\n" * 100), ("zeros", bytes(100000))):
            with self.subTest(name=name):
                with open(self.path(name), "wb") as file:
                    file.write(content)
                self.run_fails("inspect", self.path(name), contains=[self.path(name)])
                self.run_fails("convert", self.path(name), "-o", self.path("out"), contains=[name])
                self.assertFalse(os.path.exists(self.path("out")))

    def test_a_full_disk_behind_standard_output_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        with open("/dev/full", "wb") as full:
            self.run_fails("cpu", stdout=full, contains=["linnet cpu:", "standard output", "No space left"])

    def test_a_closed_pipe_is_a_failure_and_not_a_signal(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as closed:
            self.run_fails("cpu", stdout=closed, contains=["standard output", "Broken pipe"])


class Cpu(harness.ProgramTest):
    def test_describes_this_machine(self):
        report = json.loads(self.run_ok("cpu", "--json").text)
        self.assertGreaterEqual(report["cores"], 1)
        self.assertLessEqual(report["default_threads"], report["allowed_cpus"])
        self.assertIn(report["level"], report["levels"])
        self.assertTrue(self.run_ok("cpu").text)

    def test_a_level_masks_the_kernels_down(self):
        report = json.loads(self.run_ok("cpu", "--json").text)
        reached = report["levels"][:report["levels"].index(report["level"]) + 1]
        for level in reached:
            masked = json.loads(self.run_ok("cpu", "--json", "--cpu", level).text)
            self.assertEqual(masked["level"], level)
            for kernel in masked["kernels"].values():  # tests/levels knows which
                self.assertNotIn("unknown", (kernel["one_row"], kernel["many_rows"]))
            targets = {"sse4": "SSE4", "avx2": "AVX2", "avx512": "AVX3", "avx512vnni": "AVX3"}
            self.assertEqual(masked["highway_target"], targets.get(level, masked["highway_target"]))


if __name__ == "__main__":
    harness.main()
