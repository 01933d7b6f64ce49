"""The examples for clusters are read by the programs that clusters have; skipped where these are not installed."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
SLURM = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
AccountingStorageType=accounting_storage/none
{plugins}
NodeName=n[0-1] NodeAddr=localhost CPUs=16 RealMemory=64000 State=UNKNOWN
PartitionName=all Nodes=n[0-1] Default=YES MaxTime=INFINITE State=UP
"""


def program(name):
    """Its path; ASKER_SLURM names a folder where Slurm was unpacked."""
    folder = Path(os.environ.get("ASKER_SLURM", "/"))
    for path in (folder / "usr/bin" / name, folder / "usr/sbin" / name, folder / "usr/sbin" / f"{name}-wlm"):
        if path.exists():
            return str(path)
    found = shutil.which(name)
    return found or pytest.skip(f"{name} is not installed")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A controller of two nodes that are not there: it reads jobs, and runs none."""
    import pwd
    import socket

    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    controller = program("slurmctld")
    unpacked = Path(os.environ.get("ASKER_SLURM", "/")) / "usr/lib/x86_64-linux-gnu/slurm-wlm"
    plugins = f"PluginDir={unpacked}" if unpacked.exists() else ""
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{unpacked}:{unpacked.parent}")
    user = pwd.getpwuid(os.getuid()).pw_name
    (tmp_path / "slurm.conf").write_text(SLURM.format(port=port, user=user, folder=tmp_path, plugins=plugins))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([controller, "-D", "-c"], stdout=log, stderr=log)
        try:
            for _ in range(100):
                if subprocess.run([program("sinfo")], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.2)
            yield tmp_path
        finally:
            process.terminate()
            process.wait()


def submitted(script, folder):
    """GPUs are left out: the controller believes in those alone that a node has told of."""
    command = [program("sbatch"), "--hold", "--gpus-per-node=0", str(script), "scene.txt", "refined.txt"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_slurm_takes_the_job(slurm):
    done = submitted(EXAMPLES / "slurm.sh", slurm)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [program("scontrol"), "show", "job", done.stdout.split()[-1]], capture_output=True, text=True, check=True
    )
    for told in ("NumNodes=2", "NumTasks=2", "CPUs/Task=8", "TimeLimit=04:00:00", "Requeue=1", "JobName=asker"):
        assert told in shown.stdout
    wrong = slurm / "wrong.sh"
    wrong.write_text((EXAMPLES / "slurm.sh").read_text().replace("--requeue", "--requeueue"))
    assert "unrecognized option '--requeueue'" in submitted(wrong, slurm).stderr


def test_the_script_is_one():
    subprocess.run(["bash", "-n", str(EXAMPLES / "slurm.sh")], check=True)


def test_kubernetes_knows_the_objects():
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    import yaml

    objects = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    assert [x["kind"] for x in objects] == ["Service", "Job"]
    for x in objects:
        kubernetes_validate.validate(x, "1.32", strict=True)
    objects[1]["spec"]["paralellism"] = objects[1]["spec"].pop("parallelism")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(objects[1], "1.32", strict=True)


@pytest.mark.parametrize("name", ["slurm.sh", "kubernetes.yaml"])
def test_the_options_are_those_of_the_command(name, tmp_path, asks):
    """With what stands in their place on a cluster; the file is not there, which is told last."""
    text = (EXAMPLES / name).read_text().replace("\n", " ")
    words = text[text.index("asker solve") :].split("asker join")[0].split()
    words = words[: words.index("ports:")] if "ports:" in words else words
    names = {'"$file"': "none.txt", '"$refined"': "refined.txt", '"$JOB_COMPLETION_INDEX"': "0"}
    code, _, err = asks(*(names.get(word, word) for word in words[1:]))
    assert code == 2
    assert "there is no such file" in err
