"""quality: a model against its reference, as text, JSON and one HTML page."""
import json
import os
import re
import xml.etree.ElementTree

import harness

TEXT = "Once upon a time, in a caf\u00e9 \u2603 \U0001f600, there was \t a\n\n  bird. 12345 "


class Quality(harness.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.path("text.txt")
        with open(cls.text, "w", encoding="utf-8") as file:
            file.write(TEXT * 8)

    def report(self, *args):
        return json.loads(self.run_ok("quality", *args, self.text, "--context", "32", "--json").text)

    def test_a_model_is_its_own_equal(self):
        report = self.report(self.model(), self.model())
        self.assertEqual(report["kl_max"], 0.0)
        self.assertEqual(report["top1_agreement"], 1.0)
        self.assertEqual(report["perplexity"], report["perplexity_reference"])
        self.assertEqual(report["stream_error"], [0.0] * 3)
        self.assertEqual(report["reference"]["kv"], "f32")

    def test_measures_what_perplexity_measures(self):
        saved = self.path("saved")
        context = ["--context", "32", "--windows", "5"]
        self.run_ok("perplexity", self.model(), self.text, *context, "--save-logits", saved)
        expected = json.loads(self.run_ok("perplexity", self.model("q4"), self.text, *context, "--kl-from", saved,
                                          "--json").text)
        report = self.report(self.model(), self.model("q4"), "--windows", "5")
        for key in ("tokens", "windows", "bits_per_weight", "top1_agreement"):
            self.assertEqual(report[key], expected[key], key)
        self.assertEqual(report["model"]["weight_bytes"], expected["weight_bytes"])
        self.assertAlmostEqual(report["perplexity"], expected["perplexity"], places=6)
        # The saved distributions have 16 bits; half a step is 0.00025 nats.
        self.assertAlmostEqual(report["perplexity_reference"], expected["perplexity_reference"], delta=0.05)
        for key in ("kl_mean", "kl_median", "kl_p99", "kl_max"):
            self.assertAlmostEqual(report[key], expected[key], delta=1e-5 + 0.01 * expected[key])

    def test_layers_differ_more_the_fewer_bits_there_are(self):
        q8 = self.report(self.model(), self.model("q8"))["stream_error"]
        q4 = self.report(self.model(), self.model("q4"))["stream_error"]
        self.assertEqual(len(q8), 3)
        self.assertGreater(q8[2], 0.0)
        self.assertGreater(q4[2], 2 * q8[2])

    def test_the_text_and_the_page_say_the_same(self):
        page = self.path("report.html")
        text = self.run_ok("quality", self.model(), self.model("q4"), self.text, "--context", "32", "--html", page).text
        with open(page, encoding="utf-8") as file:
            html = file.read()
        mean = re.search(r"mean (\d\.\d{6})", text).group(1)
        self.assertIn(mean, html)
        self.assertIn(os.path.basename(self.model("q4")), html)
        self.assertIn("layer 1", text)
        # Nothing is fetched from anywhere, and every drawing is well formed.
        self.assertNotRegex(html, r"(?i)https?:|src=|href=|url\(|<script|@import")
        self.assertIn("prefers-color-scheme: dark", html)
        drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
        self.assertEqual(len(drawings), 2)
        for drawing in drawings:
            root = xml.etree.ElementTree.fromstring(drawing)
            self.assertNotIn("nan", drawing)
            self.assertEqual(len(root.findall("polyline")), 1)

    def test_what_does_not_fit_together_is_refused(self):
        short = self.path("short.txt")
        with open(short, "w", encoding="utf-8") as file:
            file.write("short")
        model = self.model()
        self.run_fails("quality", model, model, short, "--context", "64", contains=["too short"])
        self.run_fails("quality", model, self.path("absent"), self.text, "--context", "64", contains=["absent"])
        self.run_fails("quality", model, model, self.text, "--context", "32", "--html", model, contains=[model])
        self.run_fails("quality", model, self.model(tokenizer=False), self.text, "--context", "64", contains=["tokenizer"])
        self.run_fails("quality", model, model, self.text, "--context", "32", "--html", self.path("no", "folder.html"),
                       contains=["folder.html"])
        self.run_fails("quality", model, model, status=2, contains=["usage"])


if __name__ == "__main__":
    harness.main()
