#!/usr/bin/env python3
"""Measures linnet beside llama.cpp on the same GGUF models and prints the ratios.

    compare_llama_cpp.sh [options] MODEL.gguf ...

Every matrix of both, embedding table and lm_head included, has one type: llama-quantize --pure makes Q4_0 and Q8_0 of
MODEL, linnet convert makes q4 of two block sizes and q8. The two programs take turns, so that what else the machine
does meets both; figures are medians over the turns, with the spread (largest - smallest) / median.

llama.cpp comes from --llama FOLDER (or LLAMA_CPP), which holds llama-bench and llama-quantize, from PATH, or from
--chroot FOLDER. Where it is absent: get_llama_cpp.sh FOLDER unpacks Debian unstable's into a folder for --chroot.
A model without weights at hand: make_random_gguf.py shapes/llama-3.2-1b.json 1b.gguf.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# What a row asks for: goal and floor of the ratio, for the smaller and the larger of the two shapes of the goals.
GOALS = {
    "pp128 q4": ((3.2, 2.2), (2.2, 1.7)), "pp512 q4": ((3.2, 2.2), (2.2, 1.7)),
    "pp128 q4 large": ((3.5, 2.4), (2.8, 2.1)), "pp512 q4 large": ((3.5, 2.4), (2.8, 2.1)),
    "tg64 q4": ((2.0, 1.3), (1.3, 1.05)), "tg64@4096 q4": ((2.0, 1.3), (1.5, 1.05)),
    "tg64 q8": ((1.4, 1.1), (1.15, 1.0)),
}
SMALL_MODEL_PARAMETERS = 500e6
FIRST_TOKEN_MS = ((50, 100), (200, 400))
BEYOND_PLAN_MB = ((5, 10), (5, 10))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf", help="f16, or any type: it is quantized anew")
    parser.add_argument("--linnet", default=os.path.join(HERE, "..", "..", "build", "release", "bin", "linnet"))
    parser.add_argument("--llama", default=os.environ.get("LLAMA_CPP", ""), metavar="FOLDER")
    parser.add_argument("--chroot", default="", metavar="FOLDER", help="run llama.cpp inside; needs root")
    parser.add_argument("--work", default="/tmp/linnet-compare",
                        help="folder for models and packed weights (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="turns of both programs (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="q4,large,depth,q8,start", help="which to measure (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--cpu", default="", help="instruction-set level that linnet is masked down to")
    parser.add_argument("--busy-cpu", type=int, default=-1, help="a spinning process stays on this CPU meanwhile")
    parser.add_argument("--raw", default="", metavar="FILE", help="also append every measurement as a JSON line")
    return parser.parse_args()


class Tools:
    """Both programs. Model names are those of files in the work folder."""

    def __init__(self, options):
        self.options = options
        self.linnet = os.path.abspath(options.linnet)
        if not os.access(self.linnet, os.X_OK):
            sys.exit("%s: expected the program linnet, found none: --linnet" % self.linnet)
        self.prefix = ["chroot", options.chroot] if options.chroot else []
        self.work = options.work
        if options.chroot:
            # Both must see the models: the work folder is in the chroot.
            self.work = os.path.join(options.chroot, "work")
        os.makedirs(self.work, exist_ok=True)
        self.environment = dict(os.environ, LINNET_CACHE=os.path.join(self.work, "cache"))
        self.find("llama-bench")

    def find(self, name):
        folder = self.options.llama
        if self.options.chroot:
            path = "/usr/bin/" + name
            found = os.path.exists(self.options.chroot + path)
        else:
            path = os.path.join(folder, name) if folder else shutil.which(name) or ""
            found = os.access(path, os.X_OK)
        if not found:
            sys.exit("%s: not found; --llama FOLDER, or get_llama_cpp.sh FOLDER and --chroot FOLDER" % name)
        return path

    def path(self, name):
        return os.path.join(self.work, name)

    def llama_path(self, name):
        return "/work/" + name if self.options.chroot else self.path(name)

    def run(self, command, **more):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, **more)
        if result.returncode != 0:
            sys.exit("%s: status %d: %s" % (" ".join(command), result.returncode, result.stderr.decode()[-400:]))
        return result.stdout.decode()

    def llama(self, name, *args):
        return self.run(self.prefix + [self.find(name)] + list(args))

    def quantize(self, model, kind):
        target = "%s-%s.gguf" % (model, kind)
        if not os.path.exists(self.path(target)):
            self.llama("llama-quantize", "--pure", "--allow-requantize", self.llama_path(model + ".gguf"),
                       self.llama_path(target), kind)
        return target

    def convert(self, model, name, *args):
        target = self.path("%s-%s.linnet" % (model, name))
        if not os.path.exists(target):
            self.run([self.linnet, "convert", self.path(model + ".gguf"), "-o", target] + list(args))
        return target

    def bench_linnet(self, model, *args):
        command = [self.linnet, "bench", model, "-t", str(self.options.threads), "-r", "1", "--kv", "f16", "--json"]
        if self.options.cpu:
            command += ["--cpu", self.options.cpu]
        return [json.loads(line) for line in self.run(command + list(args)).splitlines()]

    def bench_llama(self, model, *args):
        text = self.llama("llama-bench", "-m", self.llama_path(model), "-t", str(self.options.threads), "-r", "1", "-o",
                          "json", *args)
        results = {}
        for test in json.loads(text):
            name = "pp%d" % test["n_prompt"] if test["n_prompt"] else "tg%d" % test["n_gen"]
            if test["n_depth"]:
                name += "@%d" % test["n_depth"]
            results[name] = test["avg_ts"]
        return results


class Samples:
    """Measurements by (row, program)."""

    def __init__(self, raw):
        self.values = {}
        self.raw = raw

    def add(self, model, row, program, value):
        self.values.setdefault((row, program), []).append(value)
        if self.raw:
            with open(self.raw, "a") as file:
                file.write(json.dumps({"model": model, "row": row, "program": program, "value": value,
                                       "time": time.time(), "load": os.getloadavg()[0]}) + "\n")

    def median(self, row, program):
        return statistics.median(self.values[row, program])

    def spread(self, row, program):
        values = self.values[row, program]
        return (max(values) - min(values)) / statistics.median(values)


def measure_speed(tools, samples, model, kind, rows):
    """One turn: linnet's models of `rows` ({suffix: (path, tests)}), then llama.cpp's model of `kind`."""
    tests = {}
    for suffix, (path, arguments_) in rows.items():
        for line in tools.bench_linnet(path, "--no-peaks", *arguments_):
            if "tokens_per_s" in line:
                samples.add(model, "%s %s" % (line["test"], suffix), "linnet", line["tokens_per_s"])
        tests.setdefault(tuple(arguments_), []).append(suffix)
    for arguments_, suffixes in tests.items():
        for name, value in tools.bench_llama(kind, *arguments_).items():
            for suffix in suffixes:
                samples.add(model, "%s %s" % (name, suffix), "llama.cpp", value)


def measure_start(tools, samples, model, path):
    """A second start: the packed weights exist. The whole process, from its start to its end behind one token."""
    ids = ",".join(str(17 + 11 * i) for i in range(16))
    command = [tools.linnet, "generate", path, "--ids", ids, "-n", "1", "--ignore-eos", "--print-ids", "--threads",
               str(tools.options.threads), "--context", "512"]
    if tools.options.cpu:
        command += ["--cpu", tools.options.cpu]
    start = time.perf_counter()
    tools.run(command)
    samples.add(model, "first token", "linnet", (time.perf_counter() - start) * 1e3)


def measure_limits(tools, samples, model, path):
    # A whole chunk too, so that all of the planned memory is touched.
    for line in tools.bench_linnet(path, "-p", "128", "-n", "64"):
        if line["test"] == "tg64":
            weights_share = line["weight_bytes"] / (line["weight_bytes"] + line["kv_bytes"])
            samples.add(model, "bandwidth", "linnet", 100 * line["bandwidth_fraction"] * weights_share)
        if "resident_beyond_plan_bytes" in line:
            samples.add(model, "beyond plan", "linnet", line["resident_beyond_plan_bytes"] / 1e6)


def largest_block(tools, path):
    width = json.loads(tools.run([tools.linnet, "inspect", path, "--json"]))["config"]["model_dim"]
    return next(block for block in (128, 64, 32) if width % block == 0)


def print_ratio_row(samples, model_index, row, title):
    if (row, "linnet") not in samples.values or (row, "llama.cpp") not in samples.values:
        return
    ours, theirs = samples.median(row, "linnet"), samples.median(row, "llama.cpp")
    key = row if row in GOALS else ""
    goal, floor = GOALS[key][model_index] if key else (0, 0)
    wanted = "%.2fx | %.2fx" % (goal, floor) if goal else "- | -"
    verdict = "" if not goal else "goal" if ours / theirs >= goal else "floor" if ours / theirs >= floor else "below"
    print("| %s | %.1f (%.0f %%) | %.1f (%.0f %%) | %.2fx | %s | %s |" %
          (title, ours, 100 * samples.spread(row, "linnet"), theirs, 100 * samples.spread(row, "llama.cpp"),
           ours / theirs, wanted, verdict))


def print_plain_row(samples, row, title, unit, goal, floor, larger_is_better):
    if (row, "linnet") not in samples.values:
        return
    value = samples.median(row, "linnet")
    reached = [value >= limit if larger_is_better else value <= limit for limit in (goal, floor)]
    verdict = "goal" if reached[0] else "floor" if reached[1] else "below"
    print("| %s | %.1f %s (%.0f %%) | | | %g | %g | %s |" %
          (title, value, unit, 100 * samples.spread(row, "linnet"), goal, floor, verdict))


def report(samples, name, parameters, blocks, depth, options):
    index = 0 if parameters < SMALL_MODEL_PARAMETERS else 1
    masked = ", linnet --cpu " + options.cpu if options.cpu else ""
    print("\n%s, %.0f M parameters, %d threads%s, %d turns\n" %
          (name, parameters / 1e6, options.threads, masked, options.runs))
    print("| | linnet (spread) | llama.cpp (spread) | ratio | goal | floor | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for test in ("pp128", "pp512"):
        print_ratio_row(samples, index, test + " q4", "prefill %s, q4, block 32, tokens/s" % test[2:])
    for test in ("pp128", "pp512"):
        print_ratio_row(samples, index, test + " q4 large", "prefill %s, q4, block %d" % (test[2:], blocks))
    print_ratio_row(samples, index, "tg64 q4", "decode 64, q4, block 32")
    print_ratio_row(samples, index, "tg64 q4 large", "decode 64, q4, block %d" % blocks)
    print_ratio_row(samples, index, "tg64@%d q4" % depth, "decode 64 at depth %d, q4, f16 KV" % depth)
    print_ratio_row(samples, index, "pp128 q8", "prefill 128, q8")
    print_ratio_row(samples, index, "tg64 q8", "decode 64, q8")
    print_plain_row(samples, "first token", "second start to first token of 16", "ms", *FIRST_TOKEN_MS[index], False)
    if index == 1:
        print_plain_row(samples, "bandwidth", "weight bytes per decode step / (time x read bandwidth)", "%", 90, 75,
                        True)
    print_plain_row(samples, "beyond plan", "resident beyond mapped files and plan", "MB", *BEYOND_PLAN_MB[index],
                    False)
    sys.stdout.flush()


def compare(tools, source, options):
    model = os.path.splitext(os.path.basename(source))[0]
    if not os.path.exists(tools.path(model + ".gguf")):
        try:
            os.link(source, tools.path(model + ".gguf"))
        except OSError:
            shutil.copyfile(source, tools.path(model + ".gguf"))
    wanted = options.rows.split(",")
    q4_types = ["--weights", "q4", "--embedding", "q4", "--head", "q4"]
    q4 = tools.convert(model, "q4-32", *q4_types, "--block", "32")
    inspected = json.loads(tools.run([tools.linnet, "inspect", q4, "--json"]))
    block = largest_block(tools, q4)
    samples = Samples(options.raw)
    groups = []  # of turns: llama.cpp's model, and linnet's models with their tests
    prefill_and_decode = ["-p", "128,512", "-n", "64"]
    first = {}
    if "q4" in wanted:
        first["q4"] = (q4, prefill_and_decode)
    if "large" in wanted:
        large = tools.convert(model, "q4-%d" % block, *q4_types, "--block", str(block))
        first["q4 large"] = (large, prefill_and_decode)
    if first:
        groups.append((tools.quantize(model, "Q4_0"), first))
    if "depth" in wanted:
        groups.append((tools.quantize(model, "Q4_0"), {"q4": (q4, ["-p", "0", "-n", "64", "-d", str(options.depth)])}))
    if "q8" in wanted:
        q8 = tools.convert(model, "q8", "--weights", "q8")
        groups.append((tools.quantize(model, "Q8_0"), {"q8": (q8, ["-p", "128", "-n", "64"])}))
    if "start" in wanted:
        measure_start(tools, Samples(""), model, q4)  # the first start packs
    for turn in range(options.runs):
        print("%s: turn %d of %d, load %.1f" % (model, turn + 1, options.runs, os.getloadavg()[0]), file=sys.stderr)
        for kind, rows in groups:
            measure_speed(tools, samples, model, kind, rows)
        if "start" in wanted:
            measure_start(tools, samples, model, q4)
            measure_limits(tools, samples, model, q4)
    report(samples, model, inspected["parameters"], block, options.depth, options)


def main():
    options = arguments()
    tools = Tools(options)
    busy = None
    if options.busy_cpu >= 0:
        busy = subprocess.Popen(["taskset", "-c", str(options.busy_cpu), sys.executable, "-c", "while True: pass"])
    try:
        for source in options.models:
            compare(tools, source, options)
    finally:
        if busy:
            busy.kill()


if __name__ == "__main__":
    main()
