"""trace: the residual stream as .npy files, and the logit lens."""
import json
import os
import struct

import harness


def read_values(path):
    """Shape and values of a little-endian f32 .npy file of any rank."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}}, {})  # the format's own: a Python literal
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    values = data[10 + length:]
    return header["shape"], struct.unpack("<%df" % (len(values) // 4), values)


class Trace(harness.ProgramTest):
    IDS = "72,101,108,108,111,32,119"

    def test_writes_the_stream_and_reads_it(self):
        folder = self.path("new", "trace")
        report = json.loads(self.run_ok("trace", self.model(), "--ids", self.IDS, "-o", folder, "--json", "--top", "3",
                                        "--chunk", "3").text)
        shape, stream = read_values(os.path.join(folder, "hidden_states.npy"))
        self.assertEqual(shape, (3, 7, 32))
        rows = []
        for index in range(3):
            shape, values = read_values(os.path.join(folder, "layer_%04d.npy" % index))
            self.assertEqual(shape, (7, 32))
            rows.extend(values)
        self.assertEqual(tuple(rows), stream)
        shape, norms = read_values(os.path.join(folder, "norms.npy"))
        self.assertEqual(shape, (3, 7))
        for index, norm in enumerate(norms):
            row = stream[32 * index:32 * (index + 1)]
            self.assertAlmostEqual(norm, sum(x * x for x in row) ** 0.5, places=4)
        for name in ("attention_share.npy", "ffn_share.npy"):
            shape, shares = read_values(os.path.join(folder, name))
            self.assertEqual(shape, (2, 7))
            self.assertTrue(all(share > 0 for share in shares))
        self.assertEqual([entry["layer"] for entry in report["entries"]], [-1, 0, 1])
        for entry, norm in zip(report["entries"], norms[6::7]):
            self.assertAlmostEqual(entry["norm"], norm, places=4)
            self.assertEqual(len(entry["top"]), 3)
            self.assertIn("token", entry["top"][0])

        logits = self.path("logits.npy")
        self.run_ok("logits", self.model(), "--ids", self.IDS, "-o", logits)
        last = harness.read_npy(logits)[-1]
        best = sorted(range(len(last)), key=lambda i: (-last[i], i))[:3]
        self.assertEqual([token["id"] for token in report["entries"][-1]["top"]], best)

    def test_a_table_for_people_with_or_without_a_tokenizer(self):
        for model in (self.model(), self.model(tokenizer=False)):
            text = self.run_ok("trace", model, "--ids", self.IDS, "-o", self.path("table")).text
            for part in ("input", "attention", "ffn", "hidden_states.npy"):
                self.assertIn(part, text)

    def test_failures_name_the_reason(self):
        folder = self.path("failed")
        self.run_fails("trace", self.path("no.linnet"), "--ids", "1", "-o", folder, contains=["No such file"])
        self.run_fails("trace", self.model(), "--ids", "1,99999", "-o", folder, contains=["99999"])
        self.run_fails("trace", self.model(), "--ids", self.IDS, "--context", "3", "-o", folder, contains=["context"])
        blocked = self.path("a_file")
        with open(blocked, "w"):
            pass
        self.run_fails("trace", self.model(), "--ids", "1", "-o", blocked, contains=[blocked])
        self.assertFalse(os.path.exists(folder))
        for line in ("trace m --ids 1", "trace m -o d", "trace m --ids 1 -o d --top 0"):
            self.run_fails(*line.split(), status=2, contains=["usage"])


if __name__ == "__main__":
    harness.main()
