"""Figure of the page about learning a noise model: kernel width and weight of loop closures, trained on pose graphs.

    python docs/images/learn_noise.py

Prints the numbers of the page and writes learn_noise.png next to this file.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import asker

N_POSES, N_LOOPS, N_TRAIN, N_TEST, N_STEPS = 40, 40, 4, 20, 15
ODOMETRY_NOISE, LOOP_NOISE, FALSE_LOOPS = np.array([0.02, 0.02, 0.01]), np.array([0.1, 0.1, 0.05]), 0.25
FIRST = np.arange(N_POSES) == 0


def relative(a, b):
    """Return the pose b in the frame of a."""
    c, s = np.cos(a[:, 2]), np.sin(a[:, 2])
    d = b - a
    return np.stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]], axis=1)


def off_edge(a, b, measured):
    d = a.rotation.T @ (b.translation - a.translation) - measured[:2]
    turn = b.angle - a.angle - measured[2]
    return jnp.array([d[0], d[1], 2 * jnp.sin(turn / 2)]) / jnp.array([1.0, 1.0, 0.5])


def graph(seed):
    """Return the true poses of a robot on two rounds, measured odometry, and loop closures of which some are false."""
    rng = np.random.default_rng(seed)
    turn = 4 * np.pi / N_POSES + rng.normal(0, 0.1, N_POSES)
    angle = np.concatenate([[0.0], np.cumsum(turn)[:-1]])
    steps = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:-1]
    truth = np.column_stack([np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)]), angle])
    odometry = relative(truth[:-1], truth[1:]) + rng.normal(size=(N_POSES - 1, 3)) * ODOMETRY_NOISE
    i = rng.integers(0, N_POSES // 2, N_LOOPS)
    j = i + N_POSES // 2
    loops = relative(truth[i], truth[j]) + rng.normal(size=(N_LOOPS, 3)) * LOOP_NOISE
    false = rng.random(N_LOOPS) < FALSE_LOOPS
    loops[false] += rng.uniform(-2, 2, (int(false.sum()), 3))
    return truth, odometry, loops, i, j


def integrated(odometry):
    """Return the poses of odometry alone."""
    poses = [np.zeros(3)]
    for x, y, turn in odometry:
        c, s = np.cos(poses[-1][2]), np.sin(poses[-1][2])
        poses.append(poses[-1] + [c * x - s * y, s * x + c * y, turn])
    return np.array(poses)


def pose_graph(seed, known=True):
    """Return the problem of a graph, and its true positions; `known` for kernels that are given."""
    truth, odometry, loops, i, j = graph(seed)
    poses = asker.Variables(integrated(odometry), asker.SE2, fixed=FIRST, name="poses")
    k = np.arange(N_POSES - 1)
    kernels = (asker.Quadratic(), asker.GemanMcClure(1.0)) if known else (None, None)
    return asker.Problem(
        asker.Factors(off_edge, poses[k], poses[k + 1], data=odometry, kernel=kernels[0], name="odometry"),
        asker.Factors(off_edge, poses[i], poses[j], data=loops, kernel=kernels[1], name="loops"),
    ), truth[:, :2]


def error_of(seed):
    """Return a function of the model, log τ and log weight of the loops: the mean squared error, and its gradient."""
    problem, truth = pose_graph(seed)
    solution = asker.differentiable(problem, wrt=["loops.tau", "loops.weight"], strategy=asker.IRLS(), threads=1)

    def error(model):
        log_tau, log_weight = model
        poses = solution(jnp.exp(log_tau), jnp.full(N_LOOPS, jnp.exp(log_weight)))["poses"]
        return ((poses[:, :2] - truth) ** 2).sum(axis=1).mean()

    return jax.jit(jax.value_and_grad(error))


def descend(errors, start):
    """Return the models and losses of Adam with steps of 0.4."""
    model, mean, square = start, np.zeros(2), np.zeros(2)
    models, losses = [], []
    for k in range(N_STEPS):
        values, gradients = zip(*(error(model) for error in errors), strict=True)
        g = np.mean(gradients, axis=0)
        models.append(model)
        losses.append(float(np.mean(values)))
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g**2
        model = model - 0.4 * (mean / (1 - 0.9 ** (k + 1))) / (np.sqrt(square / (1 - 0.99 ** (k + 1))) + 1e-12)
    return models[int(np.argmin(losses))], losses


def solved(seed, model=None):
    """Return the mean squared error of positions of a graph under a noise model, by default the estimated one."""
    problem, truth = pose_graph(seed, known=model is not None)
    strategy = None
    if model is not None:
        odometry, loops = problem.factors
        tau, weight = np.exp(model)
        problem = asker.Problem(odometry, loops.with_tau(tau).with_weight(weight))
        strategy = asker.IRLS()
    poses = asker.solve(problem, strategy)["poses"]
    return ((poses[:, :2] - truth) ** 2).sum(axis=1).mean()


def rmse(values):
    return np.sqrt(np.mean(values))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    start = np.log([1.0, 1.0])
    model, losses = descend([error_of(seed) for seed in range(N_TRAIN)], start)
    test = [1000 + k for k in range(N_TEST)]
    results = {
        "initial model": [solved(k, start) for k in test],
        "learned model": [solved(k, model) for k in test],
        "noise estimated\n(unsupervised)": [solved(k) for k in test],
    }
    tau, weight = np.exp(model)
    print(
        f"learned: tau {tau:.3f}, weight {weight:.4f}; loss of the training graphs {losses[0]:.4f} -> {min(losses):.4f}"
    )
    for name, values in results.items():
        print(f"{' '.join(name.split())}: {rmse(values):.3f}")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(np.sqrt(losses), color="#0072b2")
    left.set(xlabel="gradient step", ylabel="error of training graphs", ylim=(0, None), title="Training, 4 graphs")
    for k, values in enumerate(results.values()):
        jitter = np.random.default_rng(0).uniform(-0.15, 0.15, N_TEST)
        right.plot(k + jitter, np.sqrt(values), ".", color="#8a8a8a", markersize=4)
        right.plot([k - 0.25, k + 0.25], [rmse(values)] * 2, color="#d55e00", linewidth=2)
        right.text(k + 0.28, rmse(values), f"{rmse(values):.3f}", va="center", fontsize=8)
    right.set_xticks(range(len(results)), list(results))
    right.set(ylabel="error of positions", yscale="log", title="20 other graphs", xlim=(-0.5, 2.7))
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
