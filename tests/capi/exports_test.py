"""What liblinnet.so shows: exactly the functions of linnet.h, its soname, segments that fit pages of 16 KiB.
exports_test.py NM READELF LIBRARY HEADER"""
import re
import subprocess
import sys
import unittest

NM, READELF, LIBRARY, HEADER = sys.argv[1:5]


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


class Exports(unittest.TestCase):
    def test_the_symbols_are_those_of_the_header(self):
        with open(HEADER, encoding="ascii") as file:
            declared = set(re.findall(r"^LINNET_EXPORT [^(]*?(linnet_\w+)\(", file.read(), re.MULTILINE))
        self.assertGreater(len(declared), 30)
        lines = output(NM, "-D", "--defined-only", LIBRARY).splitlines()
        # Kind A: the version's own name.
        found = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] != "A"}
        self.assertEqual(found, declared)

    def test_the_soname_has_the_major_version_only(self):
        self.assertRegex(output(READELF, "-d", LIBRARY), r"SONAME.*liblinnet\.so(\.[0-9]+)?\]")

    def test_segments_fit_pages_of_16_kib(self):
        loads = [line for line in output(READELF, "-lW", LIBRARY).splitlines() if line.split()[:1] == ["LOAD"]]
        self.assertGreaterEqual(len(loads), 2)
        for line in loads:
            self.assertGreaterEqual(int(line.split()[-1], 16), 16384, line)

    def test_it_needs_no_library_but_the_systems(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]", output(READELF, "-d", LIBRARY))
        for name in needed:
            self.assertRegex(name, r"^(lib(c|m|dl|log|pthread|stdc\+\+|gcc_s|asan|ubsan|tsan)|ld-[a-z0-9-]+)\.so")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
