#!/bin/bash
# A BAL file on several nodes with one GPU each:
#
#     sbatch examples/cluster/slurm.sh scene.txt refined.txt
#
# The processes of a Slurm step find each other by Slurm's variables. What was killed, or requeued, goes on from its
# checkpoint. File and checkpoint must lie where all nodes see them. Plain text: of compressed text each reads all.
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
