"""verify: hashes, and recorded answers replayed."""
import json
import os
import shutil

import harness


class Verify(harness.ProgramTest):
    def recorded(self, weights):
        path = self.path("recorded_%s.linnet" % weights)
        if not os.path.exists(path):
            shutil.copyfile(self.model(weights), path)
            self.run_ok("verify", path, "--record")
        return path

    def report(self, *args):
        return json.loads(self.run_ok("verify", *args, "--json").text)

    def test_the_device_that_recorded_gives_the_same_bits(self):
        for weights in ("f32", "q8", "q4"):
            for args in ([], ["--threads", "3", "--chunk", "5"]):
                report = self.report(self.recorded(weights), *args)
                self.assertEqual(report["positions"], 64)
                self.assertEqual(report["same_top"], 64)
                self.assertTrue(report["same_bits"], report)
                self.assertEqual(report["largest_difference"], 0.0)

    def test_lower_instruction_sets_agree_within_the_tolerance(self):
        cpu = json.loads(self.run_ok("cpu", "--json").text)
        for weights in ("f32", "q8", "q4"):
            for level in cpu["levels"]:
                result = self.run_program("verify", self.recorded(weights), "--cpu", level, "--json")
                if result.returncode != 0 and ("reach" in result.errors or "odd number of blocks" in result.errors):
                    continue  # another architecture, a CPU below this level, or q4 that is refused below AVX2
                self.assertEqual(result.returncode, 0, result.errors)
                report = json.loads(result.text)
                self.assertLessEqual(report["rms_difference"], report["tolerance"])

    def test_recording_changes_nothing_else(self):
        before = json.loads(self.run_ok("inspect", self.model("q8"), "--json").text)
        after = json.loads(self.run_ok("inspect", self.recorded("q8"), "--json", "--check").text)
        self.assertEqual(before["tensors"], after["tensors"])
        ids = ["--ids", "1,2,3", "-n", "8", "--print-ids"]
        self.assertEqual(self.run_ok("generate", self.model("q8"), *ids).text,
                         self.run_ok("generate", self.recorded("q8"), *ids).text)

    def test_a_file_without_answers_and_a_damaged_one_are_told(self):
        self.run_fails("verify", self.model(), contains=["--record"])
        damaged = self.path("damaged.linnet")
        shutil.copyfile(self.recorded("f32"), damaged)
        with open(damaged, "r+b") as file:
            file.seek(70000)
            byte = file.read(1)
            file.seek(70000)
            file.write(bytes([byte[0] ^ 1]))
        self.run_fails("verify", damaged, contains=["SHA-256"])
        self.run_fails("verify", damaged, "--record", contains=["SHA-256"])

    def test_other_answers_are_told(self):
        # An int8 cache changes an f32 model by more than another device may.
        self.run_fails("verify", self.recorded("f32"), "--kv", "int8", contains=["standard deviations"])


if __name__ == "__main__":
    harness.main()
