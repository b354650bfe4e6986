"""Lays out every YAML file an operator may copy, with the certificates it names, in one scratch folder.

Called by tests/run.sh: `configurations.py TARGET`. Copies conf/, writes the README's YAML blocks and the Kubernetes
ConfigMap's file beside it, and makes a certificate for every cert/key pair they name and do not bring along. It knows
no YAML: the two keys it looks for are found line by line.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

# Server names of a made-up certificate, by file stem; any other stem `x` gets x.example.com.
NAMES = {"wildcard": "*.example.com", "star": "*.example.com", "tls": "app.example.com"}
VALUE = r"""["']?([^"',}\s#]+)["']?"""


def main() -> None:
    target = pathlib.Path(sys.argv[1])
    shutil.copytree("conf", target)
    write_readme_blocks(target)
    write_config_map(target)
    for file in sorted([*target.rglob("*.yaml"), *target.rglob("*.yml")]):
        provide_files(file, target)


def write_readme_blocks(target: pathlib.Path) -> None:
    """Each fenced block of README.md that is a whole file (it has `routes:`)."""
    readme = pathlib.Path("README.md").read_text(encoding="utf-8")
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", readme, re.M | re.S), 1):
        if re.search(r"^routes:", block, re.M):
            (target / f"readme-{number}.yaml").write_text(block, encoding="utf-8")


def write_config_map(target: pathlib.Path) -> None:
    """The block scalar `portcullis.yaml: |` of the Kubernetes manifest."""
    manifest = pathlib.Path("deploy/kubernetes/portcullis.yaml").read_text(encoding="utf-8")
    found = re.search(r"^  portcullis\.yaml: \|\n((?:    .*\n|\n)+)", manifest, re.M)
    if not found:
        sys.exit("deploy/kubernetes/portcullis.yaml: no block `portcullis.yaml: |`")
    (target / "kubernetes-config-map.yaml").write_text(textwrap.dedent(found[1]), encoding="utf-8")


def provide_files(file: pathlib.Path, target: pathlib.Path) -> None:
    """Makes the missing certificates `file` names; absolute paths are moved below `target` first."""
    text = file.read_text(encoding="utf-8")
    live = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    certs = re.findall(rf"\bcert:\s*{VALUE}", live)
    keys = re.findall(rf"\bkey:\s*{VALUE}", live)
    authorities = re.findall(rf"\bca:\s*{VALUE}", live)
    text = re.sub(rf"\b((?:cert|key|ca):\s*[\"']?)(/[^\"',}}\s#]+)", rf"\g<1>{target}/absolute\g<2>", text)
    file.write_text(text, encoding="utf-8")
    for cert, key in [*zip(certs, keys), *((ca, ca + ".key") for ca in authorities)]:
        make_certificate(place(cert, file, target), place(key, file, target))


def place(path: str, file: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    return target / "absolute" / path.lstrip("/") if path.startswith("/") else file.parent / path


def make_certificate(cert: pathlib.Path, key: pathlib.Path) -> None:
    if cert.exists():
        return
    cert.parent.mkdir(parents=True, exist_ok=True)
    key.parent.mkdir(parents=True, exist_ok=True)
    stem = cert.stem
    name = NAMES.get(stem, stem if "." in stem else f"{stem}.example.com")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
         "-subj", "/CN=portcullis gate", "-addext", f"subjectAltName=DNS:{name}",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True)


if __name__ == "__main__":
    main()
