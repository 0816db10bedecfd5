"""logits, generate, tokenize, perplexity: what they compute and how they fail."""
import json
import math
import os
import subprocess
import unittest

import harness
import tiny_checkpoint

PROMPT = "256,72,101,108,108,111,44,32,119,111,114,108,100"
TEXT = "Once upon a time, in a caf\u00e9 \u2603 \U0001f600, there was \t a\n\n  bird. 12345 "


def top(row):
    return max(range(len(row)), key=row.__getitem__)


class Logits(harness.ProgramTest):
    def logits(self, *args):
        output = self.path("logits.npy")
        self.run_ok("logits", self.model(), "--ids", PROMPT, "-o", output, *args)
        with open(output, "rb") as file:
            return file.read()

    def test_the_file_is_valid_and_finite(self):
        self.logits()
        rows = harness.read_npy(self.path("logits.npy"))
        self.assertEqual(len(rows), len(PROMPT.split(",")))
        self.assertEqual(len(rows[0]), tiny_checkpoint.VOCAB)
        self.assertTrue(all(math.isfinite(value) for row in rows for value in row))

    def test_chunks_and_threads_give_the_same_bits(self):
        expected = self.logits()
        for args in (["--chunk", "1"], ["--chunk", "7"], ["--threads", "1"], ["--threads", "2"], ["--threads", "3"],
                     ["--no-cache"], ["--context", "13"]):
            with self.subTest(args=args):
                self.assertEqual(self.logits(*args), expected)

    def test_a_position_sees_no_later_one(self):
        self.logits()
        whole = harness.read_npy(self.path("logits.npy"))
        output = self.path("part.npy")
        self.run_ok("logits", self.model(), "--ids", ",".join(PROMPT.split(",")[:5]), "-o", output)
        self.assertEqual(harness.read_npy(output), whole[:5])

    def test_wrong_prompts_are_refused_and_leave_no_file(self):
        output = self.path("no.npy")
        self.run_fails("logits", self.model(), "--ids", "1,260", "-o", output, contains=["vocabulary", "260", "259"])
        self.run_fails("logits", self.model(), "--ids", PROMPT, "--context", "12", "-o", output,
                       contains=["context", "12", "13"])
        self.run_fails("logits", self.model(), "--ids", "1", "-o", self.path("no", "such.npy"),
                       contains=["such.npy", "No such file"])
        self.assertFalse(os.path.exists(output))


class Generate(harness.ProgramTest):
    def generate(self, *args, **options):
        return self.run_ok("generate", self.model(), *args, **options)

    def ids(self, *args):
        text = self.generate("--ids", PROMPT, "--print-ids", *args).text
        self.assertRegex(text, r"^\d+(,\d+)*\n$")
        return [int(number) for number in text.split(",")]

    def test_greedy_ids_are_the_largest_logits(self):
        ids = self.ids("-n", "6", "--temp", "0", "--ignore-eos")
        self.assertEqual(len(ids), 6)
        output = self.path("check.npy")
        sequence = PROMPT + "," + ",".join(map(str, ids))
        self.run_ok("logits", self.model(), "--ids", sequence, "-o", output, "--kv", "f32")
        rows = harness.read_npy(output)[len(PROMPT.split(",")) - 1:-1]
        self.assertEqual([top(row) for row in rows], ids)

    def test_a_seed_repeats_and_greedy_is_the_default(self):
        self.assertEqual(self.ids("-n", "12", "--ignore-eos"), self.ids("-n", "12", "--ignore-eos", "--temp", "0"))
        sampled = ["-n", "24", "--temp", "5", "--ignore-eos"]
        first = self.ids(*sampled, "--seed", "1")
        self.assertEqual(self.ids(*sampled, "--seed", "1"), first)
        self.assertNotEqual(self.ids(*sampled, "--seed", "2"), first)

    def test_one_candidate_is_greedy_at_any_temperature(self):
        greedy = self.ids("-n", "8", "--ignore-eos")
        self.assertEqual(self.ids("-n", "8", "--ignore-eos", "--temp", "3", "--top-k", "1"), greedy)

    def test_the_contexts_end_is_told(self):
        result = self.generate("--ids", PROMPT, "--print-ids", "-n", "50", "--ignore-eos", "--context", "20")
        # The 20 positions hold 13 tokens of the prompt and 7 of the answer; the last logits give one more.
        self.assertEqual(len(result.text.split(",")), 8)
        self.assertIn("context", result.errors)
        self.run_fails("generate", self.model(), "--ids", PROMPT, "--context", "12", contains=["context"])

    def test_cache_types_agree_roughly_and_run(self):
        for kv in ("f32", "f16", "int8"):
            with self.subTest(kv=kv):
                self.assertEqual(len(self.ids("-n", "4", "--ignore-eos", "--kv", kv)), 4)

    def test_text_is_whole_characters(self):
        for seed in "123":
            output = self.generate("--prompt", "abc", "-n", "60", "--temp", "3", "--seed", seed, "--ignore-eos").stdout
            output.decode("utf-8")  # strict

    def test_a_prompt_begins_with_what_its_ids_say(self):
        encoded = self.run_ok("tokenize", self.model(), "--special", "Hello").text.strip()
        by_text = self.generate("--prompt", "Hello", "--print-ids", "-n", "5", "--ignore-eos").text
        self.assertEqual(by_text, self.generate("--ids", encoded, "--print-ids", "-n", "5", "--ignore-eos").text)

    def test_without_a_tokenizer_ids_still_work(self):
        model = self.model(tokenizer=False)
        self.run_ok("generate", model, "--ids", "1,2", "--print-ids", "-n", "3")
        self.run_fails("generate", model, "--ids", "1,2", contains=["tokenizer"])
        self.run_fails("generate", model, "--ids", "1,300", contains=["vocabulary", "300"])
        self.run_fails("generate", model, "--prompt", "a", contains=["tokenizer"])
        self.run_fails("tokenize", model, "a", contains=["tokenizer"])

    def test_a_reader_that_leaves_ends_the_run(self):
        # So many ids that they do not fit the pipe's buffer: the program cannot be done before the reader leaves.
        args = ["generate", self.model(), "--ids", PROMPT, "--print-ids", "-n", "40000", "--context", "41000", "--ignore-eos"]
        with subprocess.Popen(harness.PROGRAM + args, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.read(1)
            process.stdout.close()
            errors = process.stderr.read().decode()
            self.assertEqual(process.wait(timeout=60), 1)
        self.assertIn("Broken pipe", errors)


class Tokenize(harness.ProgramTest):
    def test_ids_turn_back_into_the_text(self):
        with open(self.path("text"), "w", encoding="utf-8", newline="") as file:
            file.write(TEXT)
        ids = self.run_ok("tokenize", self.model(), "--file", self.path("text")).text
        self.assertEqual([int(number) for number in ids.split(",")], list(TEXT.encode()))
        self.assertEqual(self.run_ok("tokenize", self.model(), "--decode", ids).stdout, TEXT.encode())
        self.assertEqual(self.run_ok("tokenize", self.model(), "--decode", stdin=ids.replace(",", " ")).stdout, TEXT.encode())
        self.assertEqual(self.run_ok("tokenize", self.model(), stdin=TEXT).text, ids)

    def test_special_tokens(self):
        self.assertEqual(self.run_ok("tokenize", self.model(), "a</s>").text, "97,257\n")
        self.assertEqual(self.run_ok("tokenize", self.model(), "--plain", "</s>").text, "60,47,115,62\n")
        self.assertEqual(self.run_ok("tokenize", self.model(), "--decode", "97,257").text, "a</s>")

    def test_json(self):
        report = json.loads(self.run_ok("tokenize", self.model(), "--json", "ab").text)
        self.assertEqual(report, {"count": 2, "ids": [97, 98], "tokens": ["a", "b"]})

    def test_no_text_gives_no_ids(self):
        self.assertEqual(self.run_ok("tokenize", self.model(), "").text, "\n")
        self.assertEqual(self.run_ok("tokenize", self.model(), "--decode", "").text, "")

    def test_what_is_no_list_of_ids_is_refused(self):
        self.run_fails("tokenize", self.model(), "--decode", "1,x", contains=["1,x"])
        self.run_fails("tokenize", self.model(), "--decode", "260", contains=["259"])


class Perplexity(harness.ProgramTest):
    def setUp(self):
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="utf-8") as file:
            file.write("The quick brown fox jumps over the lazy dog. " * 4)

    def report(self, model, *args):
        return json.loads(self.run_ok("perplexity", model, self.text, "--json", *args).text)

    def test_counts_the_second_half_of_every_window(self):
        report = self.report(self.model(), "--context", "32")
        with open(self.text, "rb") as file:
            content = file.read()
        windows = len(content) // 32
        nll, count = 0.0, 0
        for index in range(windows):
            window = list(content[32 * index:32 * index + 32])
            output = self.path("window.npy")
            self.run_ok("logits", self.model(), "--ids", ",".join(map(str, window)), "-o", output)
            for position, row in enumerate(harness.read_npy(output)[16:31], start=16):
                peak = max(row)
                total = math.log(sum(math.exp(value - peak) for value in row)) + peak
                nll += total - row[window[position + 1]]
                count += 1
        self.assertEqual(report["tokens"], count)
        self.assertEqual(report["windows"], windows)
        self.assertAlmostEqual(report["perplexity"], math.exp(nll / count), delta=1e-4 * math.exp(nll / count))

    def test_a_model_does_not_differ_from_itself_but_from_its_quantized_form(self):
        saved = self.path("saved")
        self.report(self.model(), "--context", "32", "--windows", "3", "--save-logits", saved)
        same = self.report(self.model(), "--context", "32", "--kl-from", saved)
        self.assertEqual(same["windows"], 3)
        # Half a step of the file's 16 bits is 0.00025 nats, and the sum is quadratic in it.
        self.assertLess(abs(same["kl_mean"]), 1e-6)
        self.assertEqual(same["top1_agreement"], 1.0)
        self.assertAlmostEqual(same["perplexity_reference"] / same["perplexity"], 1.0, delta=3e-4)
        other = self.report(self.model("q4"), "--context", "32", "--kl-from", saved)
        self.assertGreater(other["kl_mean"], 1e-5)
        self.assertGreaterEqual(other["kl_p99"], other["kl_median"])
        self.assertLess(other["bits_per_weight"], 32)

    def test_saved_logits_of_something_else_are_refused(self):
        saved = self.path("saved32")
        self.report(self.model(), "--context", "32", "--save-logits", saved)
        self.run_fails("perplexity", self.model(), self.text, "--context", "16", "--kl-from", saved, contains=[saved, "context"])
        os.truncate(saved, os.path.getsize(saved) - 1)
        self.run_fails("perplexity", self.model(), self.text, "--context", "32", "--kl-from", saved, contains=[saved])
        self.run_fails("perplexity", self.model(), self.text, "--context", "32", "--kl-from", self.text, contains=[self.text])

    def test_a_short_text_is_refused(self):
        self.run_fails("perplexity", self.model(), self.text, "--context", "200", contains=["too short", "200"])
        self.run_fails("perplexity", self.model(), self.text, "--context", "32", "--windows", "100", contains=["3200"])


@unittest.skipUnless(os.path.isdir(os.path.join(harness.SHARED, "real", "stories260k")), "shared/real/stories260k is absent")
class Stories(harness.ProgramTest):
    def test_greedy_text_is_the_expected_one(self):
        source = os.path.join(harness.SHARED, "real", "stories260k")
        model = self.path("stories.linnet")
        self.run_ok("convert", source, "-o", model, "--weights", "f32")
        with open(os.path.join(source, "expected_greedy.txt"), encoding="utf-8") as file:
            expected = file.read()
        self.assertEqual(self.run_ok("generate", model, "--ids", "1", "-n", "200", "--temp", "0").text, expected)


if __name__ == "__main__":
    harness.main()
