"""bench: speed, profile, report."""
import html.parser
import json
import os
import re

import harness


def by_test(lines):
    return {line["test"]: line for line in lines}


class Page(html.parser.HTMLParser):
    """Checks that elements nest and that nothing is fetched."""
    VOID = {"meta", "line", "polyline", "circle", "rect"}

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], {}

    def handle_starttag(self, tag, attributes):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        for name, value in attributes:
            assert name not in ("src", "href", "xlink:href"), (tag, name, value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        assert self.open and self.open[-1] == tag, (self.open[-3:], tag)
        self.open.pop()


class Bench(harness.ProgramTest):
    def test_a_line_for_each_test_and_one_of_loading(self):
        options = ["-p", "8", "-n", "4", "-t", "1,2", "-r", "2", "--depth", "0,16", "--json"]
        result = self.run_ok("bench", self.model(), *options)
        lines = [json.loads(line) for line in result.text.splitlines()]
        tests = [(line["test"], line["threads"]) for line in lines if "tokens_per_s" in line]
        names = ["pp8", "tg4", "pp8@16", "tg4@16"]
        self.assertEqual(tests, [(name, threads) for threads in (1, 2) for name in names])
        for line in lines[:-1]:
            self.assertGreater(line["tokens_per_s"], 0)
            self.assertGreaterEqual(line["spread"], 0)
            self.assertTrue(line["model"] and line["cpu"])
        for key in ("load_ms", "first_token_ms", "peak_rss_bytes", "plan_bytes", "read_bandwidth_bytes_per_s"):
            self.assertGreater(lines[-1][key], 0, key)

    def test_tests_beyond_the_context_are_refused(self):
        self.run_fails("bench", self.model(), "-p", "8", "-n", "4", "--context", "7", "--json",
                       contains=["context", "8", "7"])

    def lines(self, *args):
        result = self.run_ok("bench", self.model("q8"), "-r", "2", "--json", *args)
        return [json.loads(line) for line in result.text.splitlines()]

    def test_samples_and_costs(self):
        lines = by_test(self.lines("-p", "1,16", "-n", "4", "-d", "0,8", "-t", "1", "--warm-up", "0"))
        for name in ("pp1", "pp16", "tg4", "pp16@8", "tg4@8"):
            line = lines[name]
            self.assertEqual(len(line["samples"]), 2)
            self.assertEqual(line["samples"], sorted(line["samples"]))
            self.assertAlmostEqual(line["tokens_per_s"], sum(line["samples"]) / 2, delta=1e-6 * line["tokens_per_s"])
            # Products of every token; only the head is counted once in a prefill.
            self.assertGreater(line["int8_multiply_adds"], 0)
            seconds = int(re.findall(r"[0-9]+", name)[0]) / line["tokens_per_s"]
            moved = line["weight_bytes"] + line["kv_bytes"]
            self.assertAlmostEqual(line["bytes_per_s"] * seconds / moved, 1, places=6)
            self.assertGreater(line["bandwidth_fraction"], 0)
            self.assertGreater(line["peak_fraction"], 0)
        self.assertEqual(lines["tg4"]["int8_multiply_adds"], 4 * lines["pp1"]["int8_multiply_adds"])
        self.assertGreater(lines["tg4@8"]["kv_bytes"], lines["tg4"]["kv_bytes"])
        self.assertGreater(lines["load"]["dot_product_peak_per_s"], 0)
        self.assertIn("bits", lines["load"]["dot_product_instruction"])

    def test_without_peaks(self):
        lines = self.lines("-p", "4", "-n", "0", "--no-peaks")
        self.assertNotIn("bandwidth_fraction", lines[0])
        self.assertNotIn("read_bandwidth_bytes_per_s", lines[-1])

    def test_the_profile_adds_up(self):
        for option in ("--profile", "--profile-layers"):
            lines = self.lines("-p", "40", "-n", "3", "-t", "1", "--chunk", "16", "--no-peaks", option)
            for test in ("pp40", "tg3"):
                whole = by_test(lines)[test]
                steps = [line for line in lines if line.get("profile_of") == test]
                self.assertAlmostEqual(sum(step["share"] for step in steps), 1, places=6)
                for key in ("weight_bytes", "kv_bytes", "int8_multiply_adds", "float_multiply_adds"):
                    self.assertEqual(sum(step[key] for step in steps), whole[key], key)
                names = [(step["step"], step["layer"]) for step in steps]
                self.assertEqual(len(set(names)), len(names))
                self.assertEqual(any(layer > 0 for _, layer in names), option == "--profile-layers")
                for step in steps:
                    self.assertTrue(step["kernel"] and step["instruction_set"])
                    self.assertEqual(step["flops"], 2 * (step["int8_multiply_adds"] + step["float_multiply_adds"]))
                    self.assertEqual(step["calls"] % 1, 0)

    def test_the_profile_is_readable_text(self):
        text = self.run_ok("bench", self.model("q8"), "-p", "8", "-n", "2", "-r", "1", "--profile").text
        for part in ("pp8", "tg2", "attention.qkv", "ffn.down", "head", "share", "kernel", "int8"):
            self.assertIn(part, text)

    def test_the_page_stands_alone(self):
        path = self.path("bench.html")
        options = ["-p", "8", "-n", "2", "-d", "0,16", "-t", "1,2", "-r", "2", "--html", path]
        self.run_ok("bench", self.model("q8"), *options)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        page = Page()
        page.feed(text)
        self.assertEqual(page.open, [])
        self.assertEqual(page.seen["svg"], 4)  # decode and prefill by depth, roofline, memory
        self.assertGreater(page.seen["circle"], 20)
        for part in ("prefers-color-scheme: dark", "Roofline", "Memory by class", "tg2@16", "attention.qkv"):
            self.assertIn(part, text)
        self.assertIsNone(re.search(r"\b-?(nan|inf)\b", text))
        self.assertNotIn("http", text)

    def test_a_page_that_cannot_be_written(self):
        model = self.model("q8")
        self.run_fails("bench", model, "-p", "1", "-n", "0", "--html", model, contains=[os.path.basename(model)])
        self.run_fails("bench", model, "-p", "1", "-n", "0", "--no-peaks", "--json", "--html",
                       self.path("no", "x.html"), contains=["no/x.html"])


if __name__ == "__main__":
    harness.main()
