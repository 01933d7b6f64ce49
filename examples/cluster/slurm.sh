#!/bin/bash
# A BAL file on several nodes with one GPU each:
#
#     sbatch examples/cluster/slurm.sh scene.txt refined.txt
#
# The processes of a Slurm step connect by Slurm's variables. A killed or requeued job continues from its checkpoint.
# File and checkpoint must be on a drive of all nodes. Use plain text: every process reads all of a compressed file.
#SBATCH --job-name=asker
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=asker-%j.log
set -euo pipefail
file=$1
refined=$2

srun --kill-on-bad-exit=1 asker solve "$file" --engine xla --quiet --checkpoint "$refined.run.npz" --every 50 --output "$refined" --parts --json "$refined.json"
asker join "$file" "$refined"
