# SPDX-License-Identifier: Apache-2.0
"""Workers of Dask: nobody without the run's keys can use what listens, and the front stays the same."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.cli.main import exit_code
from weft.explore import cluster
from weft.explore.workers import Keys, dask
from weft.support.errors import WeftError

pytest.importorskip("distributed", reason="needs the extra explore: pip install -e '.[explore]'")
pytest.importorskip("cryptography", reason="needs the extra explore: pip install -e '.[explore]'")
psutil = pytest.importorskip("psutil")

ALERT = b"\x15"
"""The first byte of a message of TLS that says why it ends."""
ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"


def listening() -> dict[tuple[str, int], int]:
    """Address -> process, of this one and all that it has started."""
    here = psutil.Process()
    return {tuple(found.laddr): process.pid for process in (here, *here.children(recursive=True))
            for found in process.net_connections("tcp") if found.status == psutil.CONN_LISTEN}


def refused_without_keys(port: int) -> bool:
    """Whether a stranger who speaks TLS is sent away, and one who does not gets no answer but an alert of TLS."""
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            answer = plain.recv(100)
            assert answer[:1] in (b"", ALERT), answer
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        try:
            with context.wrap_socket(raw) as stranger:
                return stranger.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


@pytest.mark.slow
def test_workers_here_begin_with_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each worker's numpy would take all cores. What the variables were comes back."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    given: list[str | None] = []

    @contextlib.contextmanager
    def local(count: int) -> Iterator[SimpleNamespace]:
        given.extend(map(os.environ.get, names))
        yield SimpleNamespace(nthreads=lambda: dict.fromkeys(range(count), 1), get_executor=lambda pure: None)

    monkeypatch.setattr(cluster, "local", local)
    monkeypatch.setenv(names[0], "7")
    monkeypatch.delenv(names[1], raising=False)
    with dask(2, None) as (_, threads):
        assert threads == 2 and given == ["1", "1"]
    assert [*map(os.environ.get, names)] == ["7", None]


def test_nothing_listens_that_others_can_use() -> None:
    before = listening()
    with dask(2, None) as (executor, workers):
        assert workers == 2 and executor.submit(os.getpid).result() != os.getpid()
        new = {place: process for place, process in listening().items() if place not in before}
        assert len(new) >= 3 and {address for address, _ in new} == {"127.0.0.1"}
        assert not any(port == 8787 for _, port in new)
        assert {port: refused_without_keys(port) for _, port in new} == {port: True for _, port in new}
    assert not listening().keys() - before.keys()


@pytest.mark.slow
def test_a_scheduler_with_keys_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed.security import Security

    made = Security.temporary()
    paths = [tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")]
    for path, text in zip(paths, (made.tls_ca_file, made.tls_client_cert, made.tls_client_key), strict=True):
        path.write_text(text)
    keys = Keys.read(*paths)
    monkeypatch.setattr(Security, "temporary", lambda: made)
    with dask(1, None) as (executor, _):
        address = executor._client.scheduler.address  # type: ignore[attr-defined]
        with dask(1, address, keys) as (other, workers):
            assert workers == 1 and other.submit(os.getpid).result() != os.getpid()
        stranger = subprocess.run([sys.executable, "-c", "from distributed.security import Security\n"
                                   "print(Security.__dict__['temporary'].__func__(Security).tls_ca_file)"],
                                  capture_output=True, text=True, check=True)
        wrong = Keys(stranger.stdout, keys.certificate, keys.key)
        with pytest.raises(WeftError, match="keys signed alike"), dask(1, address, wrong):
            pass


@pytest.mark.wide_cases("*-keys signed alike")
@pytest.mark.parametrize(("arguments", "text"), [
    (("--scheduler", "tcp://127.0.0.1:8786"), "tcp://127.0.0.1:8786: found no TLS; allowed: a scheduler that"),
    (("--scheduler", "127.0.0.1:8786"), "127.0.0.1:8786: found no TLS; allowed: a scheduler that knows its users"),
    (("--scheduler", "inproc://x"), "allowed: a scheduler that knows its users"),
    (("--scheduler", "tls://127.0.0.1:8786"), "found no keys"),
    (("--scheduler", "tls://127.0.0.1:8786", "--tls-ca", "ca.pem"), "--tls-ca alone"),
    (("--tls-key", "key.pem"), "--tls-key: found no --scheduler"),
    (("--scheduler", "tls://127.0.0.1:1", "--tls-ca", "pipe", "--tls-cert", "pipe", "--tls-key", "pipe"),
     "key file pipe: found a pipe or a device"),
    (("--scheduler", "tls://127.0.0.1:1", "--tls-ca", "text", "--tls-cert", "text", "--tls-key", "text"),
     "keys signed alike"),
])
def test_a_scheduler_without_keys_is_refused(arguments: tuple[str, ...], text: str, tmp_path: Path,
                                             capfd: pytest.CaptureFixture[str],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("text").write_text("milk\n")
    assert exit_code(["explore", str(DIGITS), "--part", "xc7a35t", "--host-fallback", "--axis", "data_type=FP16BP8",
                      *arguments]) == 1
    said = capfd.readouterr().err
    assert text in " ".join(said.split()) and "way out: " in said and "Traceback" not in said
