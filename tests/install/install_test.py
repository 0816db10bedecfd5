"""Installs into a folder of its own; builds and runs projects that find the package there; makes the .deb.
install_test.py CMAKE CPACK BUILD native|cross C_COMPILER TARGET [EMULATOR...] PROGRAM"""
import os
import re
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import harness  # noqa: E402

CMAKE, CPACK, BUILD, KIND, CC, TARGET = sys.argv[1:7]
CFLAGS = os.environ.get("LINNET_CFLAGS", "").split()
del sys.argv[1:7]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7": "armhf"}


def run(*command, env=None):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, env=env)
    text = result.stdout.decode("utf-8", "replace")
    if result.returncode != 0:
        raise AssertionError("%s:\n%s" % (" ".join(command), text))
    return text


@unittest.skipUnless(KIND == "native", "a consumer of another machine's build")
class Install(harness.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.path("prefix")
        run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)

    def expected(self):
        plan = self.run_ok("plan", self.model(), "--json").text
        return int(re.search(r'"kv_cache_bytes": ?([0-9]+)', plan).group(1))

    def check_programs(self, folder, names, env=None):
        for name in names:
            with self.subTest(program=name):
                output = run(os.path.join(folder, name), self.model(), env=env)
                self.assertEqual(output.split()[-1], str(self.expected()))

    def build(self, source, *options):
        folder = self.path("build_" + source)
        run(CMAKE, "-S", os.path.join(HERE, source), "-B", folder, "-G", "Ninja", "-DCMAKE_C_COMPILER=" + CC,
            "-DCMAKE_PREFIX_PATH=" + self.prefix, *options)
        run(CMAKE, "--build", folder)
        return folder

    def libdir(self):
        for folder, _, files in os.walk(self.prefix):
            if "liblinnet.a" in files:
                return folder
        raise AssertionError("no liblinnet.a below " + self.prefix)

    def test_cmake_package_for_c_and_cpp_with_every_public_header(self):
        include = os.path.join(self.prefix, "include", "linnet")
        headers = sorted(os.path.relpath(os.path.join(folder, name), include)
                         for folder, _, names in os.walk(include) for name in names)
        self.assertIn("core/session.h", headers)
        source = self.path("headers.cc")
        with open(source, "w", encoding="ascii") as file:
            file.writelines('#include "%s"\n' % header for header in headers)
        folder = self.build("consumer", "-DHEADERS_SOURCE=" + source)
        self.check_programs(folder, ["static_c", "shared_c", "static_cc"])

    def test_cmake_package_for_a_project_in_c_alone(self):
        self.check_programs(self.build("c_only"), ["static_c"])

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        env = self.environment(PKG_CONFIG_PATH=os.path.join(self.libdir(), "pkgconfig"))
        self.assertEqual(run("pkg-config", "--modversion", "linnet", env=env).count("."), 2)
        for name, options, link in (("static", ["--static"], ["-static"]), ("shared", [], [])):
            flags = run("pkg-config", *options, "--cflags", "--libs", "linnet", env=env).split()
            run(CC, os.path.join(HERE, "consumer", "main.c"), "-o", self.path(name), *flags, *link, env=env)
        env["LD_LIBRARY_PATH"] = self.libdir()
        self.check_programs(self.folder, ["static", "shared"], env)

    def test_what_is_installed_says_nothing_of_where_it_was_built(self):
        for folder, _, names in os.walk(self.prefix):
            for name in names:
                if not name.endswith((".pc", ".cmake", ".h")):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertNotIn(os.path.dirname(BUILD), file.read(), name)


@unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb")
class Package(harness.ProgramTest):
    """The .deb, unpacked somewhere: no architecture is asked, but by what runs its programs."""
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run(CPACK, "-G", "DEB", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", cls.folder)
        cls.debs = [name for name in os.listdir(cls.folder) if name.endswith(".deb")]
        cls.root = cls.path("root")
        run("dpkg-deb", "-R", cls.path(cls.debs[0]), cls.root)

    def test_fields_and_files(self):
        self.assertEqual(len(self.debs), 1)
        fields = run("dpkg-deb", "-f", self.path(self.debs[0]))
        files = run("dpkg-deb", "-c", self.path(self.debs[0]))
        architecture = ARCHITECTURES[TARGET.split("-")[0]]
        self.assertRegex(self.debs[0], r"^linnet_[0-9.]+_%s\.deb$" % architecture)
        for field in ("Package: linnet", "Architecture: " + architecture, "Section: science"):
            self.assertIn("\n" + field, "\n" + fields)
        self.assertRegex(fields, r"Version: [0-9]+\.[0-9]+\.[0-9]+\n")
        self.assertRegex(fields, r"Depends: libc6 \(>= 2\.\d+\), libgcc-s1 \(>= \d+\), libstdc\+\+6 \(>= \d+\)\n")
        with open(os.path.join(self.root, "DEBIAN", "triggers"), encoding="ascii") as file:
            self.assertEqual(file.read(), "activate-noawait ldconfig\n")
        for path in ("usr/bin/linnet", "usr/include/linnet.h", "usr/include/linnet/core/session.h", "/liblinnet.a",
                     "/liblinnet.so", "/linnet.pc", "/linnet-config.cmake", "usr/share/doc/linnet/LICENSE",
                     "usr/share/doc/linnet/THIRD_PARTY_NOTICES"):
            self.assertRegex(files, re.escape(path) + r"( -> .*)?\n")

    def test_its_program_and_its_libraries_run(self):
        lib, include = os.path.join(self.root, "usr", "lib"), os.path.join(self.root, "usr", "include")
        plan = self.run_ok("plan", self.model(), "--json").text
        program = os.path.join(self.root, "usr", "bin", "linnet")
        self.assertEqual(run(*harness.PROGRAM[:-1], program, "plan", self.model(), "--json"), plan)
        expected = re.search(r'"kv_cache_bytes": ?([0-9]+)', plan).group(1)
        for name, link in (("static", ["-static", "-llinnet", "-lstdc++", "-lm", "-pthread"]),
                           ("shared", ["-llinnet", "-Wl,-rpath," + lib])):
            with self.subTest(library=name):
                run(CC, *CFLAGS, "-std=c99", "-I", include, os.path.join(HERE, "consumer", "main.c"),
                    "-o", self.path(name), "-L", lib, *link)
                self.assertEqual(run(*harness.PROGRAM[:-1], self.path(name), self.model()).split()[-1], expected)


if __name__ == "__main__":
    harness.main()
